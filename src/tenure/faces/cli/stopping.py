"""A process that runs until a signal, and then ends in time, whoever it still waits for.

Whatever it holds can be taken from it at any instant, so nothing is lost by that; it is less polite
than to give it back.
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
"""For all that a stop waits for; the systemd units in deploy/ allow 30."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(work: Callable[[Callable[[], None]], Coroutine[None, None, None]]) -> None:
    """Run this until it ends; it is given what it hands to `at_signal`."""
    import uvloop

    with (
        bounded() as begun,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        suppress(asyncio.CancelledError),  # stopped before it had started
    ):
        runner.run(work(begun))


def at_signal(begun: Callable[[], object]) -> Callable[[Callable[[], object]], None]:
    """From now on a signal tells `begun` and cancels this task; the answer takes what it does then.

    That is given once the process has started, and can stop in order.  A second signal does not
    wait: it does what it does to any process, unless it came before the first was looked at.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    does: list[Callable[[], object]] = [] if task is None else [task.cancel]
    stops = False

    def told() -> None:
        nonlocal stops
        if stops:
            return
        stops = True
        begun()
        does[-1]()
        for one in SIGNALS:
            loop.remove_signal_handler(one)

    for one in SIGNALS:
        loop.add_signal_handler(one, told)
    return does.append


@contextmanager
def bounded(seconds: float = STOP_SECONDS) -> Iterator[Callable[[], None]]:
    """Once what this gives is called, the block ends within so long, or the process does."""
    timer = threading.Timer(seconds, _end, [seconds])
    timer.daemon = True
    try:
        yield timer.start
    finally:
        timer.cancel()


def _end(seconds: float) -> None:
    log.critical("not everything could be given back within %g s; others take it over", seconds)
    os._exit(Exit.FAILED)
