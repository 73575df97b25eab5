"""Runs a process until a signal, and then ends it within a bounded time.

Another process can take over its work at any instant, so nothing is lost if the time is up.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress

from tenure.faces.cli.exits import Exit

log = logging.getLogger("tenure")
STOP_SECONDS = 25.0
"""The longest time that a stop takes; the systemd units in deploy/ allow 30."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(work: Callable[[Callable[[], None]], Coroutine[None, None, None]]) -> None:
    """Run this until it ends; its argument is for `at_signal`."""
    import uvloop

    with (
        exit_within() as on_signal,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        suppress(asyncio.CancelledError),  # stopped before it had started
    ):
        runner.run(work(on_signal))


def at_signal(on_signal: Callable[[], object]) -> Callable[[Callable[[], object]], None]:
    """From now on a signal calls `on_signal` and cancels this task.

    The function that is returned takes another action in place of the cancellation, once the
    process has started and can stop in order.  A second signal ends the process at once.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    actions: list[Callable[[], object]] = [] if task is None else [task.cancel]
    stopping = False

    def handle() -> None:
        nonlocal stopping
        if stopping:
            return
        stopping = True
        on_signal()
        actions[-1]()
        for one in SIGNALS:
            loop.remove_signal_handler(one)

    for one in SIGNALS:
        loop.add_signal_handler(one, handle)
    return actions.append


@contextmanager
def exit_within(seconds: float = STOP_SECONDS) -> Iterator[Callable[[], None]]:
    """Yield a function: `seconds` after it is called the process ends, if the block is not left."""
    timer = threading.Timer(seconds, _end, [seconds])
    timer.daemon = True
    try:
        yield timer.start
    finally:
        timer.cancel()


def _end(seconds: float) -> None:
    log.critical(
        "the shutdown took longer than %g s; the process ends now and others take over", seconds
    )
    os._exit(Exit.FAILED)
