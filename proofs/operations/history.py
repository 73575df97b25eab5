"""What callers were told and what was seen at the ports, held against the books at the end.

The invariants of `proofs.operations.invariants` look at what is left.  These sentences are about
what happened on the way: a cancel that was acknowledged is heeded, nobody is told "not kept" of
what is kept, a process that has lost an operation writes nothing more, no undo leaves while its do
is under way.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from proofs.operations.invariants import Books, Evidence
from tenure.app.operations.views import OperationView
from tenure.core.ids import ResourceKey
from tenure.core.operation import OperationState, Record, RecordKind
from tenure.core.plan import Plan, Step
from tenure.ports.provider import Observation, OwnedResource, Provider, Spec
from tenure.ports.store import Change, Claimed, Put, Refused, Store
from tenure.testing.fakes import World
from tenure.testing.faults import Faults
from tenure.testing.loop import EPOCH, Trace
from tenure.testing.memory_store import Tables
from tenure.testing.plans import SIGNAL

SLACK_SECONDS = 16.0
"""How long after its deadline a step may be turned back: a takeover, a restart and a look."""
CALL_SECONDS = 1.5
"""One call and its record."""


class Told(NamedTuple):
    """What callers know."""

    accepted: dict[str, int]
    """Operations that were acknowledged, with the wish they were for."""
    cancelled: set[str]
    """Operations whose cancel was acknowledged."""
    signalled: Counter[str]
    ended: dict[str, OperationState]
    """Operations that someone was told have ended."""
    not_kept: set[int]
    """Wishes of which someone was told that nothing was kept."""
    by_operator: set[str]


class Witness:
    """Sees what is applied, claimed and called."""

    def __init__(self, trace: Trace, now: Callable[[], float]) -> None:
        """Nothing was seen yet."""
        self.wrong: list[str] = []
        self.told = Told({}, set(), Counter(), {}, set(), set())
        self.defects: list[str] = []
        self._trace = trace
        self._now = now
        self._words: dict[int, Change] = {}
        self._process_of: dict[str, str] = {}

    # --- at the store ---------------------------------------------------------------------------

    def records(self, change: Change) -> None:
        """What is handed in is a worker's word: what the end of a move means."""
        self._words[id(change)] = change  # held, so that no other change gets this id

    def before(self, change: Change, tables: Tables) -> tuple[str, str] | None:
        """The operation and the worker who holds it, if this is a worker's word."""
        if self._words.pop(id(change), None) is None:
            return None
        for write in change.plain().writes:
            if write.table == "operation":
                row = tables.rows["operation"].get(cast(Any, write.key))
                return None if row is None else (str(row["id"]), str(row["worker"]))
        return None

    def applied(
        self,
        name: str,
        change: Change,
        answer: Refused | None,
        before: tuple[str, str] | None,
    ) -> None:
        """A change of this process was applied or refused."""
        self._trace.add(f"{self._now():.6f}", name, change.id, answer is None)
        if answer is not None:
            return
        for write in change.writes:
            if write.table == "lease" and isinstance(write, Put):
                self._process_of[str(write.row["holder"])] = name
        if before is not None and self._process_of.get(before[1], name) != name:
            operation, worker = before
            self.wrong.append(f"one_writer: process {name} wrote for {operation} of {worker}")

    def held(self, tables: Tables, now: float) -> dict[str, str]:
        """The open operations of workers whose lease is alive, by the one clock that counts."""
        leases, alive = tables.rows["lease"], {}
        for (name,), row in tables.rows["operation"].items():
            if row["ended_at"] is None:
                lease = leases.get((f"worker/{row['worker']!s}",))
                if lease is not None and cast(float, lease["until"]) >= now:
                    alive[str(name)] = str(row["worker"])
        return alive

    def claimed(
        self, name: str, worker: str, claimed: Sequence[Claimed], alive: Mapping[str, str]
    ) -> None:
        """Operations were claimed."""
        for operation, token, _ in claimed:
            self._trace.add(f"{self._now():.6f}", name, "claims", operation, token)
            if operation in alive and alive[operation] != worker:
                holder = alive[operation]
                self.wrong.append(f"nobody_alive_is_robbed: {worker} took {operation} of {holder}")

    # --- at the providers -----------------------------------------------------------------------

    def watch(self, providers: Mapping[str, Provider], pace: "Pace") -> dict[str, Provider]:
        """The providers of one process, with an eye on what is under way in it."""
        doing: Counter[str] = Counter()
        return {
            name: WatchedProvider(self, inner, doing, pace) for name, inner in providers.items()
        }

    # --- what callers were told -----------------------------------------------------------------

    def saw(self, operation: OperationView) -> None:
        """Someone was told that this is how it stands."""
        if operation.done:
            self.told.ended[operation.id] = operation.state

    def violations(
        self,
        evidence: Evidence,
        faults: Faults,
        *,
        paused: bool,
        soon_seconds: float | None,
        wish_of: Callable[[str], int],
    ) -> list[str]:
        """All that is wrong, each with the name of the sentence it breaks."""
        found = list(dict.fromkeys(self.wrong))
        found += [f"no_defect: {defect}" for defect in self.defects]
        for check in (
            self.promises_are_kept,
            self.unclaimed_was_unclaimed,
            self.one_wish_is_one_operation,
        ):
            found += [f"{check.__name__}: {wrong}" for wrong in check(evidence.books, wish_of)]
        looks = {call.provider for call, _ in faults.struck if call.verb == "inspect"}
        if not paused:
            found += [f"deadlines_are_kept: {wrong}" for wrong in deadlines_are_kept(evidence)]
            if "identity" not in looks:
                found += [f"signals_are_seen: {wrong}" for wrong in signals_are_seen(evidence)]
                if soon_seconds is not None:
                    late = signals_are_seen_soon(evidence, soon_seconds)
                    found += [f"signals_are_seen_soon: {wrong}" for wrong in late]
        if "runtime" not in looks:
            found += [f"what_is_ready_stays: {wrong}" for wrong in what_is_ready_stays(evidence)]
        return found

    def promises_are_kept(self, books: Books, _: Callable[[str], int]) -> list[str]:
        """What was said to a caller is so for ever."""
        wrong: list[str] = []
        states = {name: OperationState(str(row["state"])) for name, row in books.operations.items()}
        wrong += [
            f"the cancel of {name} was acknowledged and it SUCCEEDED"
            for name in sorted(self.told.cancelled)
            if states.get(name) is OperationState.SUCCEEDED
        ]
        for name, state in sorted(self.told.ended.items()):
            if states.get(name) is not state:
                wrong.append(f"{name} was said to have ended as {state} and is {states.get(name)}")
        for name, count in sorted(self.told.signalled.items()):
            kinds = [row["kind"] for row in books.journals.get(name, ())]
            if kinds.count(RecordKind.SIGNALLED) < count:
                wrong.append(f"{count} signals of {name} were acknowledged and not all are kept")
        return wrong

    def unclaimed_was_unclaimed(self, books: Books, _: Callable[[str], int]) -> list[str]:
        """Only what nobody has claimed is cancelled without undos."""
        return [
            f"{name} was cancelled as unclaimed and had been claimed {row['token']!s} times"
            for name, row in books.operations.items()
            if row["token"]
            and any('"unclaimed":true' in str(record["body"]) for record in books.journals[name])
        ]

    def one_wish_is_one_operation(self, books: Books, wish_of: Callable[[str], int]) -> list[str]:
        """However often it was asked for; and what was said not to be kept is not there."""
        made: dict[int, list[str]] = defaultdict(list)
        for name, row in books.operations.items():
            made[wish_of(str(row["input"]))].append(name)
        wrong = [
            f"wish {wish} has become {len(names)} operations"
            for wish, names in sorted(made.items())
            if len(names) > 1
        ]
        wrong += [
            f"wish {wish} was said not to be kept and is operation {made[wish][0]}"
            for wish in sorted(self.told.not_kept)
            if made.get(wish)
        ]
        return wrong


class Pace:
    """Calls `stop` at the nth crossing of a process's worker; 0: never."""

    def __init__(self, crossing: int = 0) -> None:
        """Nothing was crossed; `stop` is set when there is a process."""
        self.crossing = crossing
        self.stop: Callable[[], None] = lambda: None
        self._count = 0

    async def step(self) -> None:
        """Cross, or stand still first."""
        self._count += 1
        if self._count == self.crossing:
            self.stop()
            await asyncio.sleep(0)


class WatchedProvider:
    """See `tenure.ports.provider.Provider`; nothing is changed, something is noticed."""

    def __init__(self, witness: Witness, inner: Provider, doing: Counter[str], pace: Pace) -> None:
        """Watch `inner`; `doing` counts this process's calls that make something, by key."""
        self._witness = witness
        self._inner = inner
        self._doing = doing
        self._pace = pace

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Note that it is under way."""
        self._doing[key.text] += 1
        try:
            await self._pace.step()
            answer = await self._inner.ensure(key, spec)
            await self._pace.step()
        finally:
            self._doing[key.text] -= 1
        return answer

    async def inspect(self, key: ResourceKey) -> Observation:
        """Nothing to notice."""
        await self._pace.step()
        return await self._inner.inspect(key)

    def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Nothing to notice."""
        return self._inner.list_owned(plane)

    async def remove(self, key: ResourceKey) -> None:
        """Notice if its making is under way."""
        await self._pace.step()
        if self._doing[key.text]:
            said = f"an undo of {key.name} left while its do was under way"
            self._witness.wrong.append(f"do_ends_before_its_undo: {said}")
        await self._inner.remove(key)


class WorkersStore:
    """The store as the way to move an operation sees it: what it commits is a worker's word."""

    def __init__(self, inner: Store, witness: Witness, pace: Pace) -> None:
        """Hand everything to `inner`."""
        self._inner = inner
        self._witness = witness
        self._pace = pace
        self.now = inner.now
        self.load = inner.load
        self.find = inner.find

    async def commit(self, change: Change) -> Refused | None:
        """Say whose word it is."""
        await self._pace.step()
        self._witness.records(change)
        return await self._inner.commit(change)


# --- sentences about time ----------------------------------------------------------------------


class Turned(NamedTuple):
    """An operation that was turned back since a step was not done in time."""

    operation: str
    step: Step
    since: float
    """When it was intended, or an operator last said retry."""
    at: float
    records: list[Record]


def turned_back(evidence: Evidence) -> list[Turned]:
    """Every operation that was turned back, or stuck, at a deadline going forward."""
    found: list[Turned] = []
    for name in evidence.books.operations:
        plan, records = evidence.plan_of(name), evidence.records_of(name)
        since, done = records[0].at, set[str]()
        for record in records:
            if record.kind is RecordKind.COMPENSATING or record.kind is RecordKind.STUCK:
                body = cast(dict[str, Any], record.body)
                step = (
                    body.get("step", "") if record.kind is RecordKind.COMPENSATING else record.step
                )
                if step in plan.steps and "was not done within" in str(body.get("why", "")):
                    found.append(Turned(name, plan.steps[step], since, record.at, records))
            if record.kind in {RecordKind.DONE, RecordKind.ADOPTED}:
                done.add(record.step)
                since = record.at if _completes(plan, record.step, done) else since
            if record.kind in {RecordKind.RETRIED, RecordKind.MARKED_ABSENT}:
                since = record.at
            if record.kind in {RecordKind.COMPENSATING, RecordKind.REFUSED}:
                break
    return found


def _completes(plan: Plan, step: str, done: set[str]) -> bool:
    return plan.names[plan.stage_of[step]] <= done


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
            if record.kind is RecordKind.SIGNALLED
            and cast(dict[str, Any], record.body).get("signal") == SIGNAL
        ]
        if came and came[0] < latest:
            wrong.append(f"{turn.operation} was turned back though its signal had come")
    return wrong


def signals_are_seen_soon(evidence: Evidence, seconds: float) -> list[str]:
    """Where nothing goes wrong, a signal is seen within one look round, whoever has recorded it."""
    wrong: list[str] = []
    for name in evidence.books.operations:
        records = evidence.records_of(name)
        came = [record.at for record in records if record.kind is RecordKind.SIGNALLED]
        intended = [record.at for record in records if record.step == "identity"]
        seen = [r.at for r in records if r.kind is RecordKind.DONE and r.step == "approval"]
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


def _ready_at(world: World, turn: Turned, evidence: Evidence) -> float:
    for row in evidence.books.intents[turn.operation]:
        if row["step"] == "runtime":
            at = ("runtime", str(row["key"]))
            thing = world.things.get(at) or world.removed.get(at, (None,))[0]
            if thing is not None:
                return thing.ready_at
    return float("inf")
