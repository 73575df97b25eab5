"""The progress of an operation: the state that `tenure.core.saga` computes from its journal."""

from collections.abc import Mapping

from tenure.core.operation import OperationState

Signals = Mapping[str, tuple[object, ...]]
"""Payloads of the received signals, by name, oldest first."""


NEVER = float("-inf")
_NONE: Mapping[str, object] = {}
_NO_SIGNALS: Signals = {}
NO_STEPS: frozenset[str] = frozenset()  # shared: an empty one takes 216 bytes


class Progress:
    """The state after all entries of a journal; `saga.after` returns a changed copy."""

    __slots__ = (
        "cause", "compensating_at", "done", "end", "pivot_not_found_at", "refused", "retried_at",
        "signals", "stage", "stage_since", "stuck", "undone",
    )  # fmt: skip

    def __init__(self) -> None:
        self.stage = 0
        """The newest intended stage; beyond the last when all are done."""
        self.stage_since = 0.0
        """When that stage was intended."""
        self.done: Mapping[str, object] = _NONE
        self.refused = NO_STEPS
        self.undone = NO_STEPS
        self.stuck = NO_STEPS
        self.signals: Signals = _NO_SIGNALS
        self.compensating_at: float | None = None
        self.cause = ""
        """Why it is stuck or is being undone; otherwise empty."""
        self.retried_at = 0.0
        self.pivot_not_found_at = NEVER
        """When an inspect found nothing of a called pivot; the call may still arrive later."""
        self.end: OperationState | None = None

    def copy(self) -> "Progress":
        """A copy; it shares dictionaries, which are never changed in place."""
        new = Progress.__new__(Progress)
        new.stage = self.stage
        new.stage_since = self.stage_since
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
        """Undo steps from now on; the deadlines of the undos count from `at`."""
        self.compensating_at = at
        self.cause = why
        self.stuck = NO_STEPS

    def clear_stuck(self, still_stuck: frozenset[str]) -> None:
        """Keep only these steps as stuck; clear the cause if none is left and nothing is undone."""
        self.stuck = still_stuck
        if not still_stuck and self.compensating_at is None:
            self.cause = ""

    def has_signal(self, waiting_on: str) -> bool:
        """Whether the signal that an intent waits for, `count:signal`, has come."""
        count, _, name = waiting_on.partition(":")
        return len(self.signals.get(name, ())) >= int(count)
