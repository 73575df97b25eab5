"""Which columns of an operation's intents each decision changes; pure, a part of the saga.

Decisions are: compensate, claim after a crash (`unknown_after_claim`), and an operator's retry,
adopt and mark-absent.  `tenure.core.saga` and the operator commands say when a decision is made.
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
    """Mark every intended step whose undo is a call as being removed, also a refused one.

    If the operation was never claimed, no step was called: its keys are burned without an undo.
    """
    trigger = IntentTrigger.COMPENSATION_STARTED if progress.end is None else IntentTrigger.UNDONE
    done = progress.done
    return {
        name: {"state": INTENT.after(intent.state, trigger)}
        if name in done and _is_due_now(intent)
        else {"state": INTENT.after(intent.state, trigger), **_DUE_NOW}
        for name, intent in intents.items()
        if plan.steps[name].has_undo
    }


CALL_MAY_BE_RUNNING = frozenset({IntentState.INTENDED, IntentState.REMOVING})
"""The states of an intent in which a call to its provider may be running."""


def unknown_after_claim(
    state: IntentState, unknown_since: float | None, *, was_called: bool, now: float
) -> float | None:
    """The recovery rule: since when the outcome of a step is unknown once its operation is claimed.

    The previous worker may have called each step that is intended or being removed, and can no
    longer record the outcome.  `was_called` is False if no worker had claimed the operation, or if
    a Temporal worker released it with no call running: then no outcome becomes unknown.
    Stores that claim in SQL repeat this rule in SQL; the store's contract suite compares them with
    this function for every state.
    """
    if was_called and unknown_since is None and state in CALL_MAY_BE_RUNNING:
        return now
    return unknown_since


_DUE_NOW: Columns = {"due_at": 0.0, "attempts": 0, "waiting_on": None}
"""All three are written, as a poll may have changed them since the read: it raises no revision."""


def _is_due_now(intent: Intent) -> bool:
    return intent.due_at == 0.0 and intent.attempts == 0 and intent.waiting_on is None


def retry(progress: Progress) -> IntentChanges:
    """Make the stuck steps due at once."""
    return {name: {"due_at": 0.0, "attempts": 0} for name in sorted(progress.stuck)}


def adopt(intent: Intent, principal: str) -> IntentChanges:
    """Mark a stuck step as done, because an operator says that it happened."""
    state = INTENT.after(intent.state, IntentTrigger.DONE)
    return {
        intent.step: {"state": state, "unknown_since": None, "detail": f"adopted by {principal}"}
    }


def mark_absent(progress: Progress, intent: Intent, principal: str) -> IntentChanges:
    """Clear the unknown outcome of a stuck step, because an operator says that it holds nothing.

    The step is done again; if the operation is being undone, the step counts as undone.
    """
    columns: Columns = {"unknown_since": None, "due_at": 0.0, "attempts": 0}
    if progress.compensating_at is not None:
        columns = {"state": INTENT.after(intent.state, IntentTrigger.UNDONE)}
    return {intent.step: columns | {"detail": f"marked absent by {principal}"}}
