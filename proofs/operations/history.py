"""What callers were told, held against the snapshot at the end, and rules about time.

The invariants of `proofs.operations.invariants` look at what is left.  These rules are about what
happened on the way: a cancel that was acknowledged is heeded, no caller is told "not kept" of an
operation that exists, a deadline is kept, a signal that came in time is seen.
"""

import json
from collections import Counter, defaultdict
from typing import Any, NamedTuple, cast

from proofs.harness.snapshot import Snapshot
from proofs.operations.invariants import Evidence
from tenure.app.operations.views import OperationView
from tenure.core.operation import EntryKind, JournalEntry, OperationState
from tenure.core.plan import Plan, Step
from tenure.testing.fakes import World
from tenure.testing.faults import Faults
from tenure.testing.loop import EPOCH
from tenure.testing.plans import SIGNAL

SLACK_SECONDS = 16.0
"""How long after its deadline a step may be turned back: a takeover, a restart and a poll."""
CALL_SECONDS = 1.5
"""One call and its record."""


class CallerHistory:
    """What the callers of one run were told."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.accepted: dict[str, int] = {}
        """Operations that were acknowledged, with the number of their request."""
        self.cancelled: set[str] = set()
        """Operations whose cancel was acknowledged."""
        self.signalled: Counter[str] = Counter()
        self.ended: dict[str, OperationState] = {}
        """Operations that a caller was told have ended."""
        self.not_kept: set[int] = set()
        """Requests of which a caller was told that nothing was kept."""

    def add(self, operation: OperationView) -> None:
        """Record that a caller was told this state."""
        if operation.done:
            self.ended[operation.id] = operation.state

    def violations(self, snapshot: Snapshot) -> list[str]:
        """Every answer that is not true."""
        found = list(self.wrong)
        for check in (
            self.promises_are_kept,
            self.unclaimed_was_unclaimed,
            self.one_request_is_one_operation,
        ):
            found += [f"{check.__name__}: {wrong}" for wrong in check(snapshot)]
        return found

    def promises_are_kept(self, snapshot: Snapshot) -> list[str]:
        """What was said to a caller is so for ever."""
        wrong: list[str] = []
        states = {name: OperationState(str(row.state)) for name, row in snapshot.operations.items()}
        wrong += [
            f"the cancel of {name} was acknowledged and it SUCCEEDED"
            for name in sorted(self.cancelled)
            if states.get(name) is OperationState.SUCCEEDED
        ]
        for name, state in sorted(self.ended.items()):
            if states.get(name) is not state:
                wrong.append(f"{name} was said to have ended as {state} and is {states.get(name)}")
        for name, count in sorted(self.signalled.items()):
            kinds = [row.kind for row in snapshot.journals.get(name, ())]
            if kinds.count(EntryKind.SIGNALLED) < count:
                wrong.append(f"{count} signals of {name} were acknowledged and not all are kept")
        return wrong

    def unclaimed_was_unclaimed(self, snapshot: Snapshot) -> list[str]:
        """Only what nobody has claimed is cancelled without undos."""
        return [
            f"{name} was cancelled as unclaimed and had been claimed {row.token!s} times"
            for name, row in snapshot.operations.items()
            if row.token
            and any('"unclaimed":true' in record.body for record in snapshot.journals[name])
        ]

    def one_request_is_one_operation(self, snapshot: Snapshot) -> list[str]:
        """However often it was asked for; and what was said not to be kept is not there."""
        made: dict[int, list[str]] = defaultdict(list)
        for name, row in snapshot.operations.items():
            made[request_of(row.input)].append(name)
        wrong = [
            f"request {number} has become {len(names)} operations"
            for number, names in sorted(made.items())
            if len(names) > 1
        ]
        wrong += [
            f"request {number} was said not to be kept and is operation {made[number][0]}"
            for number in sorted(self.not_kept)
            if made.get(number)
        ]
        return wrong


def request_of(input_text: object) -> int:
    """The number of the request that an operation with this input is for."""
    return int(json.loads(str(input_text))["request"])


def violations_in_time(
    evidence: Evidence, faults: Faults, *, is_paused: bool, soon_seconds: float | None
) -> list[str]:
    """Every rule about time that was broken; some hold only where nothing delays a process."""
    found: list[str] = []
    inspected = {call.provider for call, _ in faults.hits if call.verb == "inspect"}
    if not is_paused:
        found += [f"deadlines_are_kept: {wrong}" for wrong in deadlines_are_kept(evidence)]
        if "identity" not in inspected:
            found += [f"signals_are_seen: {wrong}" for wrong in signals_are_seen(evidence)]
            if soon_seconds is not None:
                late = signals_are_seen_soon(evidence, soon_seconds)
                found += [f"signals_are_seen_soon: {wrong}" for wrong in late]
    if "runtime" not in inspected:
        found += [f"what_is_ready_stays: {wrong}" for wrong in what_is_ready_stays(evidence)]
    return found


class TurnedBackStep(NamedTuple):
    """An operation that was turned back since a step was not done in time."""

    operation: str
    step: Step
    since: float
    """When it was intended, or an operator last said retry."""
    at: float
    records: list[JournalEntry]


def turned_back(evidence: Evidence) -> list[TurnedBackStep]:
    """Every operation that was turned back, or stuck, at a deadline going forward."""
    found: list[TurnedBackStep] = []
    for name in evidence.snapshot.operations:
        plan, records = evidence.plan_of(name), evidence.records_of(name)
        since, done_steps = records[0].at, set[str]()
        for record in records:
            if record.kind is EntryKind.COMPENSATING or record.kind is EntryKind.STUCK:
                body = cast(dict[str, Any], record.body)
                step = (
                    body.get("step", "") if record.kind is EntryKind.COMPENSATING else record.step
                )
                if step in plan.steps and "was not done within" in str(body.get("why", "")):
                    found.append(TurnedBackStep(name, plan.steps[step], since, record.at, records))
            if record.kind in {EntryKind.DONE, EntryKind.ADOPTED}:
                done_steps.add(record.step)
                since = record.at if _completes(plan, record.step, done_steps) else since
            if record.kind in {EntryKind.RETRIED, EntryKind.MARKED_ABSENT}:
                since = record.at
            if record.kind in {EntryKind.COMPENSATING, EntryKind.REFUSED}:
                break
    return found


def _completes(plan: Plan, step: str, done_steps: set[str]) -> bool:
    return plan.stage_names[plan.stage_of[step]] <= done_steps


def deadlines_are_kept(evidence: Evidence) -> list[str]:
    """A step that never comes is turned back, or stuck, soon after its deadline, crashes or not."""
    return [
        f"{turn.step.name} of {turn.operation} was given up {turn.at - turn.since:g} s after intent"
        for turn in turned_back(evidence)
        if turn.at - turn.since > turn.step.limits.deadline_seconds + SLACK_SECONDS
    ]


def signals_are_seen(evidence: Evidence) -> list[str]:
    """Nothing is turned back for want of a signal that had come in time."""
    wrong: list[str] = []
    for turn in turned_back(evidence):
        if turn.step.name != "approval":
            continue
        latest = turn.since + turn.step.limits.deadline_seconds - CALL_SECONDS
        came = [
            record.at
            for record in turn.records
            if record.kind is EntryKind.SIGNALLED
            and cast(dict[str, Any], record.body).get("signal") == SIGNAL
        ]
        if came and came[0] < latest:
            wrong.append(f"{turn.operation} was turned back though its signal had come")
    return wrong


def signals_are_seen_soon(evidence: Evidence, seconds: float) -> list[str]:
    """Where nothing goes wrong, a signal is seen within one look round, whoever has recorded it."""
    wrong: list[str] = []
    for name in evidence.snapshot.operations:
        records = evidence.records_of(name)
        came = [record.at for record in records if record.kind is EntryKind.SIGNALLED]
        intended = [record.at for record in records if record.step == "identity"]
        seen = [r.at for r in records if r.kind is EntryKind.DONE and r.step == "approval"]
        if came and seen and seen[0] > max(came[0], intended[0]) + seconds:
            wrong.append(f"{name} saw its signal {seen[0] - came[0]:g} s after it was recorded")
    return wrong


def what_is_ready_stays(evidence: Evidence) -> list[str]:
    """A deadline passes only after a look later than it; what that finds ready is not undone."""
    wrong: list[str] = []
    for turn in turned_back(evidence):
        if turn.step.name != "runtime_ready":
            continue
        ready_at = _ready_at(evidence.world, turn, evidence) + EPOCH
        if ready_at < turn.since + turn.step.limits.deadline_seconds:
            wrong.append(
                f"{turn.operation} was turned back {turn.at - ready_at:g} s after it was up"
            )
    return wrong


def _ready_at(world: World, turn: TurnedBackStep, evidence: Evidence) -> float:
    for row in evidence.snapshot.intents[turn.operation]:
        if row.step == "runtime":
            at = ("runtime", row.key)
            thing = world.things.get(at) or world.removed.get(at, (None,))[0]
            if thing is not None:
                return thing.ready_at
    return float("inf")
