"""The six ways in which a provider call ends, and an inspect's seventh.

Three are returned because they are news, three are raised (`tenure.core.errors`) because they are
trouble; both are values to the saga.  What an ending means is decided in `tenure.core.saga`.
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
    """Accepted and under way: look again after so many seconds."""

    retry_seconds: float = 1.0
    why: str = ""
    """Shown as the step's `detail`."""


class Waiting(NamedTuple):
    """Nothing to do before a signal of this name comes: one more than the call has seen."""

    signal: str
    """The name of the signal."""
    why: str = ""
    """Shown as the step's `detail`."""


class Absent(NamedTuple):
    """An inspect's answer: the provider holds nothing under this key."""


Unfinished = NotYet | Waiting | Absent | Rejected | Unavailable | OutcomeUnknown
Ending = Done | Unfinished


class PerformedMove(NamedTuple):
    """A move that was performed, for whoever watches: what, for whom, how it ended, how long."""

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
    """Whether it was raised rather than returned."""
    return not isinstance(ending, Done | NotYet | Waiting | Absent)


def message_of(ending: Ending) -> str:
    """The provider's own words, cut to what is kept of them."""
    if is_error(ending):
        return error_text(ending)
    return _kept(ending.why) if isinstance(ending, NotYet | Waiting) else ""


def error_text(error: BaseException) -> str:
    """What an exception says, whatever its text does."""
    try:
        return _kept(str(error))
    except Exception:  # noqa: BLE001 (it is somebody else's)
        return f"a {type(error).__name__} that cannot be shown"


def _kept(words: str) -> str:
    """Cut to what is kept, and free of what no UTF-8 can hold."""
    return words[:DETAIL_CHARACTERS_MAX].encode(errors="replace").decode()
