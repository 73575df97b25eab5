"""The endings of a provider call: what a step's do, undo or inspect returns or raises.

A step returns Done, NotYet or Waiting, or raises Rejected, Unavailable or OutcomeUnknown
(`tenure.core.errors`).  An inspect can also return Absent.  `tenure.core.saga` decides what an
operation does after each of them.
"""

from typing import NamedTuple, TypeGuard

from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import DETAIL_CHARACTERS_MAX


class Done(NamedTuple):
    """The step is done (do, inspect) or undone (undo)."""

    result: object = None
    """Plain data for later steps, at most 64 KiB as JSON."""
    burned: tuple[tuple[str, str], ...] = ()
    """Steps of earlier operations, as (operation, step), whose resources this step has removed."""


class NotYet(NamedTuple):
    """The provider is still working: call again after so many seconds."""

    retry_seconds: float = 1.0
    why: str = ""
    """Shown as the step's `detail`."""


class Waiting(NamedTuple):
    """The step waits for a signal of this name that the call has not seen yet."""

    signal: str
    """The name of the signal."""
    why: str = ""
    """Shown as the step's `detail`."""


class Absent(NamedTuple):
    """Returned by an inspect: the provider holds nothing under this key."""


Unfinished = NotYet | Waiting | Absent | Rejected | Unavailable | OutcomeUnknown
Ending = Done | Unfinished


class PerformedMove(NamedTuple):
    """A move that was performed, for metrics and traces."""

    operation: str
    tenant: str
    agent: str
    plan: str
    step: str
    act: str
    ending: Ending
    attempt: int
    started_at: float
    ended_at: float


def is_error(ending: Ending) -> TypeGuard[Rejected | Unavailable | OutcomeUnknown]:
    """Whether the ending was raised rather than returned."""
    return not isinstance(ending, Done | NotYet | Waiting | Absent)


def message_of(ending: Ending) -> str:
    """The provider's own message, cut to the length that is stored."""
    if is_error(ending):
        return error_text(ending)
    return _storable(ending.why) if isinstance(ending, NotYet | Waiting) else ""


def error_text(error: BaseException) -> str:
    """The message of an exception, also if its own `__str__` fails."""
    try:
        return _storable(str(error))
    except Exception:  # noqa: BLE001 (the exception may be of any library)
        return f"a {type(error).__name__} that cannot be shown"


def _storable(message: str) -> str:
    """Cut to the length that is stored, without characters that UTF-8 cannot encode."""
    return message[:DETAIL_CHARACTERS_MAX].encode(errors="replace").decode()
