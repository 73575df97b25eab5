"""The progress of an operation: its journal, folded by the rules of `tenure.core.saga`."""

from collections.abc import Mapping

from tenure.core.operation import OperationState

Signals = Mapping[str, tuple[object, ...]]
"""Payloads of the signals that have come, by name, oldest first."""


NEVER = float("-inf")
_NONE: Mapping[str, object] = {}
_NO_SIGNALS: Signals = {}
NO_STEPS: frozenset[str] = frozenset()  # shared: an empty one takes 216 bytes


class Progress:
    """The folded journal.  It is a value: `saga.after` returns a new one."""

    __slots__ = (
        "cause", "compensating_at", "done", "end", "pivot_not_found_at", "refused", "retried_at",
        "signals", "since", "stage", "stuck", "undone",
    )  # fmt: skip

    def __init__(self) -> None:
        self.stage = 0
        """The newest intended stage; beyond the last when all are done."""
        self.since = 0.0
        """When it was intended."""
        self.done: Mapping[str, object] = _NONE
        self.refused = NO_STEPS
        self.undone = NO_STEPS
        self.stuck = NO_STEPS
        self.signals: Signals = _NO_SIGNALS
        self.compensating_at: float | None = None
        self.cause = ""
        """Why it is stuck or turned back; otherwise empty."""
        self.retried_at = 0.0
        self.pivot_not_found_at = NEVER
        """When an inspect found nothing of a called pivot; that call may still arrive."""
        self.end: OperationState | None = None

    def copy(self) -> "Progress":
        """A Progress of its own with the same contents; dictionaries are shared until replaced."""
        new = Progress.__new__(Progress)
        new.stage = self.stage
        new.since = self.since
        new.done = self.done
        new.refused = self.refused
        new.undone = self.undone
        new.stuck = self.stuck
        new.signals = self.signals
        new.compensating_at = self.compensating_at
        new.cause = self.cause
        new.retried_at = self.retried_at
        new.pivot_not_found_at = self.pivot_not_found_at
        new.end = self.end
        return new

    def start_compensation(self, at: float, why: str) -> None:
        """From here on there are only undos; their deadlines are measured from this record."""
        self.compensating_at = at
        self.cause = why
        self.stuck = NO_STEPS

    def clear_stuck(self, still_stuck: frozenset[str]) -> None:
        """Clear steps that are no longer stuck; going forward that also clears the cause."""
        self.stuck = still_stuck
        if not still_stuck and self.compensating_at is None:
            self.cause = ""

    def has_signal(self, waiting_on: str) -> bool:
        """Whether the signal that an intent waits for, `count:signal`, has come."""
        count, _, name = waiting_on.partition(":")
        return len(self.signals.get(name, ())) >= int(count)
