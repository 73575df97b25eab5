"""News: tells whoever waits in this process that something was committed.

A hint and no more: it may come for nothing, and what another process commits is not told.  So
whoever waits looks from time to time all the same.
"""

import asyncio


class Wakeup:
    """Wakes all who wait."""

    def __init__(self) -> None:
        """Nothing has happened."""
        self.number = 0
        """Grows whenever something is told."""
        self._waiting: list[asyncio.Future[None]] = []

    def tell(self) -> None:
        """Something was committed."""
        self.number += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    async def beyond(self, number: int, *, seconds: float) -> None:
        """Return when something was told after this number, or after so many seconds."""
        if self.number != number or seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        told = loop.create_future()
        timer = loop.call_later(seconds, _give_up, told)
        self._waiting.append(told)
        try:
            await told
        finally:
            timer.cancel()
            if told in self._waiting:
                self._waiting.remove(told)


def _give_up(told: "asyncio.Future[None]") -> None:
    if not told.done():
        told.set_result(None)
