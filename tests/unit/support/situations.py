"""Small situations of an operation, and what the saga says of them."""

from typing import Any

from tenure.core import saga
from tenure.core.moves import Move
from tenure.core.operation import Intent, Record, RecordKind
from tenure.core.plan import Plan, StepKind, nobody_knows, nothing
from tests.unit.support.saga_world import step

LINE = Plan("line", stages=[step("a"), step("b"), step("c")])
PAIR = Plan("pair", stages=[step("a"), [step("b"), step("c")]])
TURN = Plan(
    "turn", stages=[step("a"), step("p", kind=StepKind.PIVOT), step("r", kind=StepKind.RETRIABLE)]
)
BLIND = Plan("blind", stages=[step("a"), step("x", inspect=nobody_knows, undo=nothing)])
ACCEPTED: tuple[object, ...] = (RecordKind.ACCEPTED, "", 100.0, {})


def folded(plan, *records):
    """Where an operation stands after these records, the first accepted at 100."""
    rows: list[Any] = [ACCEPTED, *((*row, {}) if len(row) == 3 else row for row in records)]
    return saga.fold(plan, [Record(n, *row) for n, row in enumerate(rows, 1)])


def held(*names, **columns):
    return {name: Intent(name, "", name, **columns) for name in names}


def moves(plan, progress, intents, now=101.0):
    found = saga.next_moves(plan, progress, intents, now)
    return [(move.act, move.step.name) for move in found.now]


def wakes_at(plan, progress, intents, now=101.0):
    found = saga.next_moves(plan, progress, intents, now)
    assert not found.now
    return found.wake_at


def settled(plan, progress, act, name, ending, **said):
    """What is written when this move ends at 101, having begun then, unless told otherwise."""
    intent = said.pop("intent", None) or Intent(name, "", name)
    said = {"started_at": 101.0, "now": 101.0, "jitter": 0.0, "signals": progress.signals, **said}
    return saga.settle(progress, intent, Move(act, plan.steps[name]), ending, **said)


def is_wanted(plan, progress, act, name, ending):
    return saga.is_relevant(progress, Move(act, plan.steps[name]), ending)
