"""Small situations of an operation, and the decisions of the saga in them."""

from typing import Any

from proofs.operations.journals import progress_after
from tenure.core import saga
from tenure.core.moves import Move
from tenure.core.operation import EntryKind, Intent, JournalEntry
from tenure.core.plan import Plan, StepKind, nobody_knows, nothing
from tests.unit.support.saga_world import step

LINE = Plan("line", stages=[step("a"), step("b"), step("c")])
PAIR = Plan("pair", stages=[step("a"), [step("b"), step("c")]])
PIVOT_PLAN = Plan(
    "turn", stages=[step("a"), step("p", kind=StepKind.PIVOT), step("r", kind=StepKind.RETRIABLE)]
)
BLIND = Plan("blind", stages=[step("a"), step("x", inspect=nobody_knows, undo=nothing)])
ACCEPTED_RECORD: tuple[object, ...] = (EntryKind.ACCEPTED, "", 100.0, {})


def fold_records(plan, *records):
    """The progress of an operation after these records; it was accepted at 100."""
    rows: list[Any] = [ACCEPTED_RECORD, *((*row, {}) if len(row) == 3 else row for row in records)]
    return progress_after(plan, [JournalEntry(n, *row) for n, row in enumerate(rows, 1)])


def intents_of(*names, **columns):
    return {name: Intent(name, "", name, **columns) for name in names}


def moves(plan, progress, intents, now=101.0):
    found = saga.next_moves(plan, progress, intents, now)
    return [(move.act, move.step.name) for move in found.due]


def wakes_at(plan, progress, intents, now=101.0):
    found = saga.next_moves(plan, progress, intents, now)
    assert not found.due
    return found.wake_at


def settle_move(plan, progress, act, name, ending, **options):
    """The records of a move that starts and ends at 101, unless the options differ."""
    intent = options.pop("intent", None) or Intent(name, "", name)
    defaults = {"started_at": 101.0, "now": 101.0, "jitter": 0.0, "signals": progress.signals}
    options = {**defaults, **options}
    return saga.decide_outcome(progress, intent, Move(act, plan.steps[name]), ending, **options)


def is_relevant(plan, progress, act, name, ending):
    return saga.is_relevant(progress, Move(act, plan.steps[name]), ending)
