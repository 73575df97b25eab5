"""Which columns of an operation's intents a decision changes; pure, a part of the saga.

`tenure.core.saga` and the operator's commands say when a decision is made.
"""

from collections.abc import Mapping

from tenure.core.operation import INTENT, Intent, IntentState, IntentTrigger
from tenure.core.plan import Plan
from tenure.core.progress import Progress

Columns = dict[str, int | float | str | None]
"""The columns of one intent that change, with their new values."""
IntentChanges = dict[str, Columns]
"""Changed columns by the name of the step."""
REMOVED: Columns = {"state": INTENT.after(IntentState.PRESENT, IntentTrigger.REMOVED)}
"""For the intent of another operation whose resource this operation has removed."""


def compensate(plan: Plan, progress: Progress, intents: Mapping[str, Intent]) -> IntentChanges:
    """Compensation covers every intended step whose undo is a call, also a refused one.

    An operation that was never claimed has called nobody: its keys are burned without an undo.
    """
    fate = IntentTrigger.COMPENSATION_STARTED if progress.end is None else IntentTrigger.UNDONE
    done = progress.done
    return {
        name: {"state": INTENT.after(intent.state, fate)}
        if name in done and _was_prompt(intent)
        else {"state": INTENT.after(intent.state, fate), **_DUE_NOW}
        for name, intent in intents.items()
        if plan.steps[name].undoes
    }


MAY_BE_CALLED = frozenset({IntentState.INTENDED, IntentState.REMOVING})
"""The states of an intent in which a call may be out at its provider."""


def unknown_after_claim(
    state: IntentState, unknown_since: float | None, *, was_called: bool, now: float
) -> float | None:
    """The recovery rule: since when the outcome of a step is unknown once its operation is claimed.

    The worker that had the operation before may have called each step that is intended or being
    removed, and can record nothing any more.  `was_called` is False for an operation that nobody
    had claimed (a Temporal worker also releases operations with no call running): then no step
    becomes unknown.  Stores that claim in SQL repeat this rule there, and the store's contract
    suite compares them with this function for every state.
    """
    if was_called and unknown_since is None and state in MAY_BE_CALLED:
        return now
    return unknown_since


_DUE_NOW: Columns = {"due_at": 0.0, "attempts": 0, "waiting_on": None}
"""All three are written for a step that is not done: a poll may have moved them unseen."""


def _was_prompt(intent: Intent) -> bool:
    return intent.due_at == 0.0 and intent.attempts == 0 and intent.waiting_on is None


def retry(progress: Progress) -> IntentChanges:
    """Steps that are stuck are tried again at once."""
    return {name: {"due_at": 0.0, "attempts": 0} for name in sorted(progress.stuck)}


def adopt(intent: Intent, by: str) -> IntentChanges:
    """An operator says that a stuck step did happen."""
    state = INTENT.after(intent.state, IntentTrigger.DONE)
    return {intent.step: {"state": state, "unknown_since": None, "detail": f"adopted by {by}"}}


def mark_absent(progress: Progress, intent: Intent, by: str) -> IntentChanges:
    """An operator says that a stuck step holds nothing.

    It is done again; in an operation that is being undone it counts as undone.
    """
    columns: Columns = {"unknown_since": None, "due_at": 0.0, "attempts": 0}
    if progress.compensating_at is not None:
        columns = {"state": INTENT.after(intent.state, IntentTrigger.UNDONE)}
    return {intent.step: columns | {"detail": f"marked absent by {by}"}}
