"""Telemetry: what a plane tells of its moves, to logs and to traces.

Nothing here is on the way of a move that goes well and is not traced.  No spec, input, result, body
or provider's words are ever told, so no secret can be.
"""

from collections.abc import Callable

from tenure.core.endings import PerformedMove
from tenure.settings import Settings
from tenure.telemetry.logs import log_trouble

Observe = Callable[[PerformedMove], None]


def both(*observers: Observe | None) -> Observe:
    """One observer that tells these."""
    told = tuple(one for one in observers if one is not None)
    if len(told) == 1:
        return told[0]

    def observe(performed: PerformedMove) -> None:
        for one in told:
            one(performed)

    return observe


def watching(settings: Settings) -> Observe:
    """What the settings ask for: trouble is logged; with `traces` every attempt is a span."""
    if not settings.traces:
        return log_trouble
    from tenure.telemetry.spans import Spans  # noqa: PLC0415 (only whoever traces pays for it)

    return both(log_trouble, Spans())
