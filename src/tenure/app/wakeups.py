"""Wakeups: notify waiting tasks of this process that something was committed.

A wakeup is only a hint: it may come without a reason, and commits of other processes give none.  So
a waiting task also polls from time to time.
"""

import asyncio


class Wakeup:
    """Wakes all waiting tasks."""

    def __init__(self) -> None:
        self.number = 0
        """Grows with every notification."""
        self._waiting: list[asyncio.Future[None]] = []

    def notify(self) -> None:
        """Something was committed."""
        self.number += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    async def wait_for_newer(self, number: int, *, seconds: float) -> None:
        """Return after a notification later than this number, or after so many seconds."""
        if self.number != number or seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        wake = loop.create_future()
        timer = loop.call_later(seconds, _give_up, wake)
        self._waiting.append(wake)
        try:
            await wake
        finally:
            timer.cancel()
            if wake in self._waiting:
                self._waiting.remove(wake)


def _give_up(wake: "asyncio.Future[None]") -> None:
    if not wake.done():
        wake.set_result(None)
