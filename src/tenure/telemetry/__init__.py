"""Telemetry: logs and traces of the attempts of steps.

A successful attempt that is not traced costs nothing here.  Specs, inputs, results, bodies and the
texts of providers are never written, because they can contain secrets.
"""

from collections.abc import Callable

from tenure.core.endings import PerformedMove
from tenure.settings import Settings
from tenure.telemetry.logs import log_failure

Observe = Callable[[PerformedMove], None]


def combine(*observers: Observe | None) -> Observe:
    """One observer that calls all of these."""
    active = tuple(one for one in observers if one is not None)
    if len(active) == 1:
        return active[0]

    def observe(move: PerformedMove) -> None:
        for one in active:
            one(move)

    return observe


def build_observer(settings: Settings) -> Observe:
    """The configured observer: errors are logged; with `traces` every attempt is a span."""
    if not settings.traces:
        return log_failure
    from tenure.telemetry.spans import Spans  # noqa: PLC0415 (only planes with traces load it)

    return combine(log_failure, Spans())
