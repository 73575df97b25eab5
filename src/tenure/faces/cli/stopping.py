"""A process that was told to stop ends in time, whoever it still waits for.

Whatever it holds can be taken from it at any instant, so nothing is lost by that; it is less polite
than to give it back.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tenure.faces.cli.exits import Exit

log = logging.getLogger("tenure")
STOP_SECONDS = 25.0
"""For all that a stop waits for; the systemd units in deploy/ allow 30."""


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
