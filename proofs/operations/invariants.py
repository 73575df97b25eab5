"""What must hold after every run, counted in the world and in the committed rows.

Each function keeps one sentence and returns its violations as sentences; an empty list means that
it holds.  They are asked when every operation has ended or is stuck and nothing is on its way any
more.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from proofs.harness.snapshot import Snapshot
from proofs.operations.journals import progress_after
from tenure.app.operations.handle import entry_of, intent_of
from tenure.core import saga
from tenure.core.events import event_of
from tenure.core.operation import OPERATION, EntryKind, IntentState, JournalEntry, OperationState
from tenure.core.plan import OutcomeCheck, Plan, Step, StepKind
from tenure.testing.fakes import Thing, World
from tenure.testing.loop import EPOCH
from tenure.testing.plans import EFFECTS


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the invariants are held against."""

    snapshot: Snapshot
    world: World
    plans: Mapping[str, Plan]
    """By digest, as operations name them."""
    acknowledged_ids: Collection[str] = ()
    effects: frozenset[str] = frozenset()
    """Slots whose effects stay in the world: they are counted, not collected."""

    def plan_of(self, operation: str) -> Plan:
        """The plan that an operation follows."""
        return self.plans[self.snapshot.operations[operation].plan_digest]

    def records_of(self, operation: str) -> list[JournalEntry]:
        """Its journal, as the saga reads it."""
        return [entry_of(row) for row in self.snapshot.journals[operation]]

    def resources_of(self, operation: str) -> list[Thing]:
        """What the world holds for an operation, without effects that stay."""
        row = self.snapshot.operations[operation]
        return [
            thing
            for thing in self.world.things.values()
            if thing.key.agent == row.agent
            and thing.key.generation == row.generation
            and thing.provider not in self.effects
        ]

    def state(self, operation: str) -> OperationState:
        """Where the operation's row says it is."""
        return OperationState(str(self.snapshot.operations[operation].state))


def acknowledged_are_kept(evidence: Evidence) -> list[str]:
    """Every operation that was acknowledged is in the store."""
    return [
        f"operation {name} was acknowledged and is not in the store"
        for name in evidence.acknowledged_ids
        if name not in evidence.snapshot.operations
    ]


def every_operation_ended(evidence: Evidence) -> list[str]:
    """Every operation has ended, or is stuck and names each resource that is left."""
    wrong: list[str] = []
    for name in evidence.snapshot.operations:
        state = evidence.state(name)
        if state in OPERATION.final:
            continue
        if state is not OperationState.STUCK:
            wrong.append(f"operation {name} is {state} and moves no more")
            continue
        named = {
            row.key for row in evidence.snapshot.intents[name] if row.state != IntentState.BURNED
        }
        wrong += [
            f"operation {name} is stuck and does not name {thing.provider} {thing.key.text}"
            for thing in evidence.resources_of(name)
            if thing.key.text not in named
        ]
    return wrong


def succeeded_holds_its_resources(evidence: Evidence) -> list[str]:
    """What SUCCEEDED has left in the world is exactly its resources, each once."""
    wrong: list[str] = []
    for name in evidence.snapshot.operations:
        if evidence.state(name) is not OperationState.SUCCEEDED:
            continue
        wanted = {
            (row.slot, row.key)
            for row in evidence.snapshot.intents[name]
            if row.slot and row.slot not in evidence.effects
        }
        held = {(thing.provider, thing.key.text) for thing in evidence.resources_of(name)}
        wrong += [f"{name} succeeded without {slot} {key}" for slot, key in sorted(wanted - held)]
        wrong += [
            f"{name} succeeded and left {slot} {key} too" for slot, key in sorted(held - wanted)
        ]
        steps = {step.name for stage in evidence.plan_of(name).stages for step in stage}
        burned = {
            row.step for row in evidence.snapshot.intents[name] if row.state == IntentState.BURNED
        }
        there = {
            row.step
            for row in evidence.snapshot.journals[name]
            if row.kind in {EntryKind.DONE, EntryKind.ADOPTED} and row.step not in burned
        }
        wrong += [f"{name} succeeded and does not hold {step}" for step in sorted(steps - there)]
    return wrong


def compensated_left_nothing(evidence: Evidence) -> list[str]:
    """What COMPENSATED has left in the world is nothing, however late things arrive."""
    wrong: list[str] = []
    for name in evidence.snapshot.operations:
        if evidence.state(name) is not OperationState.COMPENSATED:
            continue
        wrong += [
            f"{name} was compensated and {thing.provider} {thing.key.text} is an orphan"
            for thing in evidence.resources_of(name)
        ]
        plan = evidence.plan_of(name)
        wrong += [
            f"{name} was compensated and the intent of {row.step!s} is {row.state!s}"
            for row in evidence.snapshot.intents[name]
            if plan.steps[row.step].has_undo and row.state != IntentState.BURNED
        ]
    return wrong


def undone_newest_first(evidence: Evidence) -> list[str]:
    """Nothing is removed while something newer of its operation stands, unless that is stuck."""
    wrong: list[str] = []
    stuck: dict[tuple[str, int], dict[str, float]] = {}
    stages: dict[tuple[str, int], Mapping[str, int]] = {}
    for name, row in evidence.snapshot.operations.items():
        whose = (row.agent, row.generation)
        stages[whose] = evidence.plan_of(name).stage_of
        stuck[whose] = {
            record.step: record.at
            for record in reversed(evidence.records_of(name))
            if record.kind is EntryKind.STUCK
        }
    standing: dict[tuple[str, int], set[str]] = defaultdict(set)
    for at, provider, _, key, effect in evidence.world.log:
        whose = (key.agent, key.generation)
        if whose not in stages or provider in evidence.effects:
            continue
        if effect == "made":
            standing[whose].add(key.name)
        elif effect in {"removed", "gone"}:
            standing[whose].discard(key.name)
            stage = stages[whose]
            wrong += [
                f"{key.name} of agent {key.agent} was removed at {at:g} s while {newer} stood"
                for newer in sorted(standing[whose])
                if effect == "removed"
                and stage[newer] > stage[key.name]
                and stuck[whose].get(newer, at + EPOCH + 1) > at + EPOCH
            ]
    return wrong


def pivot_is_never_turned_back(evidence: Evidence) -> list[str]:
    """An operation whose pivot was applied is not compensated."""
    wrong: list[str] = []
    for name in evidence.snapshot.operations:
        plan = evidence.plan_of(name)
        for row in evidence.snapshot.intents[name]:
            pivot = plan.steps[row.step].kind is StepKind.PIVOT
            applied = evidence.world.made[row.slot, row.key]
            if pivot and applied and evidence.state(name) is OperationState.COMPENSATED:
                wrong.append(f"{name} was compensated though its pivot {row.step!s} was applied")
    return wrong


def nothing_is_there_twice(evidence: Evidence) -> list[str]:
    """No resource exists twice."""
    return [
        f"{thing.provider} {thing.key.text} was made {thing.times} times"
        for thing in evidence.world.things.values()
        if thing.times > 1 and thing.provider not in evidence.effects
    ]


def charged_at_most_once(evidence: Evidence) -> list[str]:
    """No effect runs twice under one key."""
    return [
        f"{provider} was charged {count} times under {key}"
        for (provider, key), count in evidence.world.made.items()
        if provider in evidence.effects and count > 1
    ]


def unknown_is_said(evidence: Evidence) -> list[str]:
    """Of what nobody can ask about, the journal says nothing that the world does not bear out."""
    wrong: list[str] = []
    for name in evidence.snapshot.operations:
        plan, records = evidence.plan_of(name), evidence.records_of(name)
        for row in evidence.snapshot.intents[name]:
            step = plan.steps[row.step]
            if step.outcome_check is OutcomeCheck.NOBODY_KNOWS:
                count = evidence.world.made[row.slot, row.key]
                wrong += _wrong_reports(evidence.state(name), step, records, count, name)
    return wrong


def _wrong_reports(
    state: OperationState, step: Step, records: list[JournalEntry], count: int, name: str
) -> list[str]:
    said = {record.kind for record in records if record.step == step.name}
    where = f"{step.name} of {name}"
    if EntryKind.ADOPTED in said or EntryKind.MARKED_ABSENT in said:
        return []  # an operator has spoken
    if EntryKind.DONE in said:
        return [] if count else [f"{where} is recorded as done and never happened"]
    if count and EntryKind.REFUSED in said:
        return [f"{where} is recorded as refused and happened"]
    if count and EntryKind.UNDONE in said:
        return [f"{where} is recorded as never called and happened"]
    if count and state in {OperationState.SUCCEEDED, OperationState.COMPENSATED}:
        return [f"{name} is {state} and says nothing of {step.name}, which happened"]
    return []


def events_tell_the_journal(evidence: Evidence) -> list[str]:
    """The outbox has one event for every journal record, in order, and nothing else."""
    told: dict[str, list[tuple[object, ...]]] = defaultdict(list)
    wrong: list[str] = []
    for event in evidence.snapshot.events:
        body = json.loads(event.body)
        told[event.operation].append((body["record"], body["step"], event.at))
        kind = event_of(EntryKind(body["record"]), OperationState(body["state"]))
        if event.type != kind:
            wrong.append(f"event {event.position} is {event.type}, not {kind}")
    for name, journal in evidence.snapshot.journals.items():
        wanted = [(row.kind, row.step, row.at) for row in journal]
        if told.pop(name, []) != wanted:
            wrong.append(f"the events of {name} are not its journal")
    return wrong + [f"there are events of {name}, which is not there" for name in told]


def journal_has_no_holes(evidence: Evidence) -> list[str]:
    """Records of an operation are numbered 1, 2, 3, and the first says that it was accepted."""
    wrong: list[str] = []
    for name, journal in evidence.snapshot.journals.items():
        if [row.seq for row in journal] != list(range(1, len(journal) + 1)):
            wrong.append(f"the journal of {name} has holes")
        if not journal or journal[0].kind != EntryKind.ACCEPTED:
            wrong.append(f"the journal of {name} does not begin with its acceptance")
    return wrong


def rows_agree_with_the_journal(evidence: Evidence) -> list[str]:
    """An operation's row says what its journal says; it has its agent's lock while it is open."""
    wrong: list[str] = []
    for name, row in evidence.snapshot.operations.items():
        plan = evidence.plan_of(name)
        progress = progress_after(plan, evidence.records_of(name))
        intents = {intent.step: intent_of(intent) for intent in evidence.snapshot.intents[name]}
        state = evidence.state(name)
        folded = saga.state_of(plan, progress, intents)
        if state not in (folded, OperationState.PENDING):
            wrong.append(f"{name} is {state} and its journal says {folded}")
        if (row.ended_at is not None) != (progress.end is not None):
            wrong.append(
                f"{name} has ended at {row.ended_at!s} and its journal says {progress.end}"
            )
        locked = evidence.snapshot.active.get(row.agent) == name
        if locked == (progress.end is not None):
            wrong.append(
                f"{name} is {state} and {'has' if locked else 'lacks'} the lock of its agent"
            )
    return wrong


def one_operation_at_a_time(evidence: Evidence) -> list[str]:
    """The world never sees an older operation of an agent act after a newer one has."""
    newest: dict[str, int] = {}
    wrong: list[str] = []
    for at, provider, verb, key, effect in evidence.world.log:
        if effect in {"refused", "nothing", "kept", "gone"}:
            continue
        if key.generation < newest.get(key.agent, 0):
            wrong.append(
                f"{provider}.{verb} of agent {key.agent} had an effect for generation"
                f" {key.generation} at {at:g} s, after {newest[key.agent]} had begun"
            )
        newest[key.agent] = max(key.generation, newest.get(key.agent, 0))
    return wrong


INVARIANTS: tuple[Callable[[Evidence], list[str]], ...] = (
    acknowledged_are_kept,
    every_operation_ended,
    succeeded_holds_its_resources,
    compensated_left_nothing,
    undone_newest_first,
    pivot_is_never_turned_back,
    nothing_is_there_twice,
    charged_at_most_once,
    unknown_is_said,
    events_tell_the_journal,
    journal_has_no_holes,
    rows_agree_with_the_journal,
    one_operation_at_a_time,
)
"""Every invariant that one snapshot can show; `journal_only_grew` needs two."""


def violations(evidence: Evidence) -> list[str]:
    """All that is wrong, each with the name of the sentence it breaks."""
    return [f"{check.__name__}: {wrong}" for check in INVARIANTS for wrong in check(evidence)]


def check_operations(
    snapshot: Snapshot, world: World, plans: Iterable[Plan], acknowledged_ids: Collection[str]
) -> list[str]:
    """Every violation in a run of the plans in `tenure.testing.plans`."""
    by_digest = {plan.digest: plan for plan in plans}
    return violations(Evidence(snapshot, world, by_digest, acknowledged_ids, EFFECTS))
