"""Safeguards that a harness can switch off, to show that its checks would notice.

A check that nothing can fail proves nothing.  Each `Ablation` takes one safeguard out of the real code, by patching it
inside a `with`, and names a mix of lives (`tenure.testing.scenario`) in which that matters.  With the safeguard the mix
must pass; without it some seed must fail, and soon.  No setting of the product reaches any of this.

usage: python -m tenure.testing.ablations [--seeds 300] [--only NAME] [--write docs/reference/ablations.md]
"""

import argparse
import asyncio
import platform
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import msgspec

from tenure.adapters.store.memory import MemoryStore, Tables
from tenure.app import advance, operations
from tenure.app.advance import Advance
from tenure.app.live import Live
from tenure.core import saga
from tenure.core.endings import Absent, Done, Ending, NotYet
from tenure.core.errors import OutcomeUnknown, Rejected, StoreError
from tenure.core.operation import Noted
from tenure.core.plan import Kind
from tenure.core.saga import Act, Move, Moves, Settled
from tenure.ports.store import Change, Claimed, Put, Refused
from tenure.testing import fakes, loop
from tenure.testing.fakes import FakeProvider
from tenure.testing.loop import SeededLoop
from tenure.testing.scenario import MIXES
from tenure.testing.simulation import Lived, live
from tenure.testing.slow_disk import SlowDisk, SlowStore

TURNS_MAX = 150_000
"""Without a safeguard a life may turn for ever; no sound one comes near this."""
Off = Callable[[], AbstractContextManager[None]]


class Oracle(StrEnum):
    """Who is to notice."""

    INVARIANTS = "invariants"
    """The sentences that are checked at the end of a life."""
    REPLAY = "replay"
    """The trace hash of the same seed, lived again."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """One safeguard, and how to do without it."""

    name: str
    protects: str
    rules: str
    promises: tuple[int, ...]
    mix: str
    off: Off
    oracle: Oracle = Oracle.INVARIANTS


@contextmanager
def patched(owner: Any, **values: Any) -> Iterator[None]:
    """Attributes of a module or class, replaced inside the `with`."""
    before = {name: owner.__dict__[name] for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


# --- the saga ----------------------------------------------------------------------------------------------

Ended = Callable[[Move, Ending], tuple[Move, Ending]]


def _owed(choose: Callable[[saga.Progress, list[Any]], list[Any]]) -> Off:
    real = saga.owed

    def owed(plan: Any, progress: saga.Progress) -> list[Any]:
        return choose(progress, real(plan, progress))

    return lambda: patched(saga, owed=owed)


def _moves(change: Callable[[saga.Progress, Move], Move]) -> Off:
    real = saga.next_moves

    def next_moves(plan: Any, progress: saga.Progress, intents: Any, now: float) -> Moves:
        moves = real(plan, progress, intents, now)
        return moves._replace(now=tuple(change(progress, move) for move in moves.now))

    return lambda: patched(saga, next_moves=next_moves)


def _settle(before: Ended | None = None, after: Callable[[Move, Settled], Settled] | None = None) -> Off:
    real = saga.settle

    def settle(progress: Any, intent: Any, move: Move, ending: Ending, **given: Any) -> Settled:
        if before is not None:
            move, ending = before(move, ending)
        settled = real(progress, intent, move, ending, **given)
        return settled if after is None else after(move, settled)

    return lambda: patched(saga, settle=settle)


def _repeat_unasked(_: saga.Progress, move: Move) -> Move:
    return move._replace(act=Act.DO) if move.act is Act.INSPECT else move


def _repeat_unknown(progress: saga.Progress, move: Move) -> Move:
    forward = progress.compensating_at is None
    return move._replace(act=Act.DO) if move.act is Act.GIVE_UP and forward else move


def _timeout_is_refusal(move: Move, ending: Ending) -> tuple[Move, Ending]:
    unknown = move.act is Act.DO and isinstance(ending, OutcomeUnknown)
    return move, Rejected(str(ending)) if unknown else ending


def _look_is_call(move: Move, ending: Ending) -> tuple[Move, Ending]:
    refused = move.act is Act.INSPECT and isinstance(ending, Rejected)
    return (move._replace(act=Act.DO) if refused else move), ending


def _undo_once(move: Move, ending: Ending) -> tuple[Move, Ending]:
    failed = move.act is Act.UNDO and not isinstance(ending, Done | Absent)
    return move, Done() if failed else ending


def _at_once_visible(move: Move, ending: Ending) -> tuple[Move, Ending]:
    limits = replace(move.step.limits, visible_seconds=0.0)
    return move._replace(step=replace(move.step, limits=limits)), ending


def _say_nothing_of_stuck(move: Move, settled: Settled) -> Settled:
    stuck = settled.record is not None and settled.record[0] is Noted.STUCK
    return settled._replace(record=None) if stuck and move.act is Act.UNDO else settled


def _forget_unknown(move: Move, settled: Settled) -> Settled:
    if move.act is not Act.GIVE_UP:
        return settled
    return settled._replace(intent={"due_at": None})


def _unseen_signals() -> AbstractContextManager[None]:
    real = saga.settle

    def settle(*given: Any, **named: Any) -> Settled:
        return real(*given, **(named | {"signals": None}))

    return patched(saga, settle=settle)


def _pivot_turned_back() -> AbstractContextManager[None]:
    real = saga._overdue  # noqa: SLF001

    def overdue(step: Any, ending: Any, *, unknown: bool) -> Any:
        if step.kind is Kind.PIVOT:
            return Noted.COMPENSATING, {"why": f"{step.name} was not done in time", "step": step.name}
        return real(step, ending, unknown=unknown)

    return patched(saga, _overdue=overdue)


def _late_cancel() -> AbstractContextManager[None]:
    return patched(saga, past_pivot=lambda _plan, _progress: False)


def _undo_beside_do() -> AbstractContextManager[None]:
    real = saga.next_moves

    def next_moves(plan: Any, progress: saga.Progress, intents: Any, now: float) -> Moves:
        if progress.compensating_at is not None:
            intents = {name: replace(intent, busy=False) for name, intent in intents.items()}
        return real(plan, progress, intents, now)

    return patched(saga, next_moves=next_moves)


# --- how it is performed -----------------------------------------------------------------------------------


def _random_keys() -> AbstractContextManager[None]:
    real = Live.key_of

    def key_of(self: Live, step: Any) -> Any:
        key = real(self, step)
        drawn = asyncio.get_running_loop().random.getrandbits(32)  # type: ignore[attr-defined]
        return key._replace(text=f"{key.text[:24]}{drawn:08x}")

    return patched(Live, key_of=key_of)


def _performing(change: Callable[[Advance, Live, Move], Move]) -> Off:
    real = Advance.perform

    def perform(self: Advance, live: Live, move: Move, *given: Any) -> Any:
        return real(self, live, change(self, live, move), *given)

    return lambda: patched(Advance, perform=perform)


def _look_no_more(self: Advance, live: Live, move: Move) -> Move:
    """Past its deadline a step counts as not done, without a look."""

    async def overdue(_: Any) -> Ending:
        return NotYet()

    late = self._store.now() >= saga.deadline_of(live.progress, move.step)  # noqa: SLF001
    if late and move.act in {Act.DO, Act.INSPECT} and move.step.kind is Kind.COMPENSATABLE:
        step = replace(move.step, do=overdue, inspect=overdue)
        return Move(Act.DO, step)
    return move


def _undo_at_once(_: Advance, live: Live, move: Move) -> Move:
    """What a refusal turns back is undone first and recorded afterwards."""
    if move.act is not Act.DO:
        return move
    do = move.step.do

    async def hasty(call: Any) -> object:
        try:
            return await do(call)
        except Rejected:
            for name in reversed(list(live.progress.done)):
                step = live.plan.steps[name]
                if step.undoes:
                    await step.undo(call._replace(key=live.key_of(step)))  # type: ignore[misc, operator]
            raise

    return move._replace(step=replace(move.step, do=hasty))


def _no_turns(_: Advance, live: Live, move: Move) -> Move:
    live.lock = None
    return move


def _interleaved() -> AbstractContextManager[None]:
    real = Advance.perform

    def perform(self: Advance, live: Live, move: Move, *given: Any) -> Any:
        coroutine = real(self, live, move, *given)
        live.lock = None
        return coroutine

    return patched(Advance, perform=perform)


def _from_the_claim() -> AbstractContextManager[None]:
    real = Advance.load
    since: dict[tuple[str, int], float] = {}

    async def load(self: Advance, operation: str, token: int) -> Live | None:
        loaded = await real(self, operation, token)
        if loaded is not None and token > 1:
            began = since.setdefault((operation, token), self._store.now())  # noqa: SLF001
            loaded.progress.since = max(loaded.progress.since, began)
        return loaded

    return patched(Advance, load=load)


def _own_calls_forgotten() -> AbstractContextManager[None]:
    real = Live.merge

    def merge(self: Live, rows: Any, absent: set[str]) -> None:
        real(self, rows, absent | set(self.intents))

    return patched(Live, merge=merge)


def _reads_not_repeated() -> AbstractContextManager[None]:
    async def once(read_it: Callable[[], Any]) -> Any:
        return await read_it()

    return patched(advance, _surely=once)


@contextmanager
def _no_fence() -> Iterator[None]:
    async def refresh(self: Advance, live: Live) -> None:
        loaded = await self._store.load(live.id)  # noqa: SLF001
        assert loaded is not None
        live.take(loaded.operation)
        live.merge(loaded.intents, live.fold(loaded.journal))

    with _without_guards("intent", "token")(), patched(Advance, refresh=refresh):
        yield


# --- what callers ask --------------------------------------------------------------------------------------


def _early_signals_dropped() -> AbstractContextManager[None]:
    real = operations.signal

    async def signal(plane: Any, tenant: str, operation: str, **given: Any) -> Any:
        loaded = await plane.store.load(operation)
        if loaded is not None and not any(row["waiting_on"] for row in loaded.intents):
            return await operations.get(plane, tenant, operation)
        return await real(plane, tenant, operation, **given)

    return patched(operations, signal=signal)


def _same_generation() -> AbstractContextManager[None]:
    real = operations._agent  # noqa: SLF001

    async def agent(plane: Any, command: Any, now: float) -> Any:
        uid, generation, guards, writes = await real(plane, command, now)
        return (uid, generation, guards, writes) if generation == 1 else (uid, 1, [], [])

    return patched(operations, _agent=agent)


# --- the store ---------------------------------------------------------------------------------------------


def _without_guards(table: str, column: str) -> Off:
    real = Tables.apply

    def apply(self: Tables, change: Change) -> Refused | None:
        guards = tuple(g for g in change.guards if g.table != table or column not in g.said)
        return real(self, change._replace(guards=guards))

    return lambda: patched(Tables, apply=apply)


def _without_put(table: str) -> Off:
    real = Tables.apply

    def apply(self: Tables, change: Change) -> Refused | None:
        writes = tuple(w for w in change.writes if w.table != table or not isinstance(w, Put))
        return real(self, change._replace(writes=writes))

    return lambda: patched(Tables, apply=apply)


def _in_a_commit_of_its_own(table: str, *, admits: bool = True) -> Off:
    """New rows of this table follow in a second commit, when the first has been answered."""
    real = SlowStore.commit

    def commit(self: SlowStore, change: Change) -> Any:
        late = tuple(w for w in change.writes if w.table == table and isinstance(w, Put))
        if not late or (change.admits and not admits):
            return real(self, change)
        first = tuple(w for w in change.writes if w not in late)
        answer = real(self, change._replace(writes=first))

        def follow(done: "asyncio.Future[Any]") -> None:
            if done.exception() is None and done.result() is None:
                real(self, Change("", (), late))

        answer.add_done_callback(follow)
        return answer

    return lambda: patched(SlowStore, commit=commit)


def _leftovers() -> AbstractContextManager[None]:
    real = Tables.apply

    def apply(self: Tables, change: Change) -> Refused | None:
        refused = real(self, change)
        if refused is not None and isinstance(refused.what, Put):
            puts = [write for write in change.writes if isinstance(write, Put)]
            for put in puts[: puts.index(refused.what)]:
                real(self, Change("", (), (put,)))
        return refused

    return patched(Tables, apply=apply)


def _ack_first() -> AbstractContextManager[None]:
    real = SlowStore.commit

    def commit(self: SlowStore, change: Change) -> Any:
        durable = real(self, change)
        if not change.admits:
            return durable
        hasty: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hasty.set_result(None)
        return hasty

    return patched(SlowStore, commit=commit)


def _commit_error_is_failure() -> AbstractContextManager[None]:
    real = SlowStore._write  # noqa: SLF001

    def write(self: SlowStore) -> None:
        if self._failing is None:  # noqa: SLF001
            real(self)
            return
        applied, self._failing = self._failing, None  # noqa: SLF001
        batch, self._handed_in = self._handed_in, []  # noqa: SLF001
        for _, work in batch if applied else ():
            self._apply(work)  # noqa: SLF001
        failed = [StoreError("the disk refused: nothing was kept") for _ in batch]
        asyncio.get_running_loop().call_soon(self._tell, batch, failed)  # noqa: SLF001

    return patched(SlowStore, _write=write)


def _claims(after: Callable[[dict[str, Any], list[dict[str, Any]], dict[str, Any]], int]) -> Off:
    """Claim, then take something back of each claimed operation: (row, intents, unknown before) → token."""
    real = Tables.claim

    def claim(self: Tables, worker: str, *, limit: int, now: float) -> list[Claimed]:
        unknown = {key: row["unknown_since"] for key, row in self.rows["intent"].items()}
        claimed = []
        for one in real(self, worker, limit=limit, now=now):
            row, intents = self.rows["operation"][one.id,], self.parts("intent", one.id)
            before = {str(i["step"]): unknown.get((one.id, str(i["step"]))) for i in intents}
            claimed.append(one._replace(token=after(row, intents, before)))
        return claimed

    return lambda: patched(Tables, claim=claim)


def _same_token(row: dict[str, Any], intents: list[dict[str, Any]], _: dict[str, Any]) -> int:
    row["token"] -= 1
    for intent in intents:
        if intent["state"] != "BURNED":
            intent["token"] = row["token"]
    return int(row["token"])


def _same_revision(row: dict[str, Any], _: list[dict[str, Any]], __: dict[str, Any]) -> int:
    row["revision"] -= 1
    return int(row["token"])


def _as_if_called_by_nobody(
    row: dict[str, Any], intents: list[dict[str, Any]], before: dict[str, Any]
) -> int:
    for intent in intents:
        intent["unknown_since"] = before[intent["step"]]
    return int(row["token"])


def _claim_forward_only() -> AbstractContextManager[None]:
    real = Tables.claim

    def claim(self: Tables, worker: str, *, limit: int, now: float) -> list[Claimed]:
        hidden = [
            row
            for row in self.rows["operation"].values()
            if row["ended_at"] is None and row["state"] in {"COMPENSATING", "STUCK"}
        ]
        for row in hidden:
            row["ended_at"] = now
        claimed = real(self, worker, limit=limit, now=now)
        for row in hidden:
            row["ended_at"] = None
        return claimed

    return patched(Tables, claim=claim)


def _claim_by_own_clock() -> AbstractContextManager[None]:
    real = SlowDisk.claim

    def claim(self: SlowDisk, store: SlowStore, worker: str, limit: int) -> list[Claimed]:
        alive = self.witness.held(self.tables, store.now())
        with patched(SlowDisk, claim=real):
            claimed = self.tables.claim(worker, limit=limit, now=store.now() + store.skew)
        self.witness.claimed(store.name, worker, claimed, alive)
        return claimed

    return patched(SlowDisk, claim=claim)


def _nothing_is_due() -> AbstractContextManager[None]:
    async def list_due(_: MemoryStore, __: str) -> list[str]:
        return []

    return patched(MemoryStore, list_due=list_due)


# --- providers, and the harness itself ---------------------------------------------------------------------


def _no_tombstones() -> AbstractContextManager[None]:
    real = FakeProvider._remove  # noqa: SLF001

    def remove(self: FakeProvider, key: Any, fault: Any) -> None:
        real(self, key, fault)
        self._world.burned.pop((self.name, key.text), None)  # noqa: SLF001

    return patched(FakeProvider, _remove=remove)


def _keys_not_honoured() -> AbstractContextManager[None]:
    real = FakeProvider._ensure  # noqa: SLF001

    def ensure(self: FakeProvider, *given: Any) -> Any:
        self._idempotent = False  # noqa: SLF001
        return real(self, *given)

    return patched(FakeProvider, _ensure=ensure)


def _foreign_adopted() -> AbstractContextManager[None]:
    real = FakeProvider._inspect  # noqa: SLF001

    def inspect(self: FakeProvider, key: Any, fault: Any) -> Any:
        seen = real(self, key, fault)
        foreign = seen.presence is fakes.Presence.FOREIGN
        return seen._replace(presence=fakes.Presence.READY) if foreign else seen

    return patched(FakeProvider, _inspect=inspect)


def _unseeded_order() -> AbstractContextManager[None]:
    real = SeededLoop.__init__

    def begin(self: SeededLoop, seed: int) -> None:
        real(self, seed)
        self.random = random.SystemRandom()

    return patched(SeededLoop, __init__=begin)


def _unseeded_ids() -> AbstractContextManager[None]:
    drawn = random.SystemRandom()
    return patched(loop.SeededEntropy, bits=lambda _: drawn.getrandbits(62))


# --- all of them -------------------------------------------------------------------------------------------

ABLATIONS: Mapping[str, Ablation] = {
    ablation.name: ablation
    for ablation in (
        Ablation(
            "undo_covers_intended", "Compensation covers every intended step, not only those known to be done.",
            "S1", (2,), "undo", _owed(lambda p, steps: [s for s in steps if s.name in p.done]),
        ),
        Ablation(
            "undo_covers_refused", "Compensation covers a refused step too: an earlier call of it may still arrive.",
            "S1 S4", (2,), "late", _owed(lambda p, steps: [s for s in steps if s.name not in p.refused]),
        ),
        Ablation(
            "undo_newest_first", "What stands on another is removed first.",
            "S15", (2,), "undo", _owed(lambda _, steps: steps[::-1]),
        ),
        Ablation(
            "undo_until_gone", "A failing undo is tried again until it is done.",
            "S18", (2,), "undo", _settle(_undo_once),
        ),
        Ablation(
            "stuck_is_said", "An undo that keeps failing is STUCK: listed, with what is left.",
            "S18", (2,), "stuck", _settle(after=_say_nothing_of_stuck),
        ),
        Ablation(
            "decision_before_undo", "The decision to compensate is recorded before the first undo.",
            "S5", (2,), "decision", _performing(_undo_at_once),
        ),
        Ablation(
            "do_ends_before_undo", "A step is undone only when no call of its do is under way.",
            "S4", (2,), "late", _undo_beside_do,
        ),
        Ablation(
            "derived_keys", "A resource's key is derived, so that it is known before the call and after a crash.",
            "S2", (2,), "undo", _random_keys,
        ),
        Ablation(
            "new_generation", "Each operation has keys of its own: a burned key is never used again.",
            "S4", (2,), "generations", _same_generation,
        ),
        Ablation(
            "inspect_first", "A call whose end is unknown is asked about before it is repeated.",
            "S3", (6,), "effects", _moves(_repeat_unasked),
        ),
        Ablation(
            "visible_window", "What a provider may not show yet is not taken for lost.",
            "S3", (6,), "effects", _settle(_at_once_visible),
        ),
        Ablation(
            "unknown_waits", "An effect that nobody can ask about stops as unknown and waits for a person.",
            "S19", (6,), "effects", _moves(_repeat_unknown),
        ),
        Ablation(
            "timeout_is_no_refusal", "A timeout is not a failure.",
            "S3 S17", (6,), "pivot", _settle(_timeout_is_refusal),
        ),
        Ablation(
            "refused_look_is_no_refusal", "A refused look says nothing of the call it asks about.",
            "S3 S17", (6,), "pivot", _settle(_look_is_call),
        ),
        Ablation(
            "unknown_pivot_stays", "A pivot whose end is unknown is never compensated.",
            "S17", (6,), "unknown_pivot", _pivot_turned_back,
        ),
        Ablation(
            "own_calls_remembered", "What only this process knows of its calls survives a fresh read.",
            "S19", (6,), "effects", _own_calls_forgotten,
        ),
        Ablation(
            "stuck_keeps_unknown", "STUCK keeps since when the outcome is unknown.",
            "S19", (6,), "effects", _settle(after=_forget_unknown),
        ),
        Ablation(
            "claim_makes_unknown", "After a takeover whatever was intended may have been called.",
            "S3 S6", (6, 7), "effects", _claims(_as_if_called_by_nobody),
        ),
        Ablation(
            "commit_error_stops", "A COMMIT that failed has no known end: the process stops and recovers.",
            "S26", (1, 6), "acceptance", _commit_error_is_failure,
        ),
        Ablation(
            "cancel_before_pivot", "A cancel is refused once the pivot is intended.",
            "S17", (2,), "pivot", _late_cancel,
        ),
        Ablation(
            "fence_token", "Every record guards the token of its claim, and whoever has lost it stops.",
            "S6", (7,), "zombies", _no_fence,
        ),
        Ablation(
            "claim_raises_token", "A claim raises the token, so that the last holder's is worthless.",
            "S6", (7,), "zombies", _claims(_same_token),
        ),
        Ablation(
            "revision_guard", "A change is applied only to what it was decided on.",
            "S5 S12", (2, 7), "abandoned", _without_guards("operation", "revision"),
        ),
        Ablation(
            "claim_raises_revision", "A claim raises the revision, so that a cancel cannot think it unclaimed.",
            "S5 S6", (2, 7), "front", _claims(_same_revision),
        ),
        Ablation(
            "store_judges_leases", "Leases expire by the store's clock and no other.",
            "S7", (7,), "clocks", _claim_by_own_clock,
        ),
        Ablation(
            "one_operation_per_agent", "An agent has one mutating operation at a time.",
            "S11", (2,), "generations", _without_put("active"),
        ),
        Ablation(
            "recovery_resumes_undos", "A takeover resumes every open operation, those going back as well.",
            "S18", (2,), "crashes", _claim_forward_only,
        ),
        Ablation(
            "later_look", "A deadline passes only after a look later than it.",
            "S5", (2,), "readiness", _performing(_look_no_more),
        ),
        Ablation(
            "deadline_from_record", "Deadlines are measured from records, so that a crash loop ends.",
            "S18", (2,), "crash_loop", _from_the_claim,
        ),
        Ablation(
            "reads_are_repeated", "A disk that refuses to be read does not end what is under way.",
            "S26", (2,), "busy_disk", _reads_not_repeated,
        ),
        Ablation(
            "records_take_turns", "Steps that end at the same time are recorded one after the other.",
            "S5", (2,), "abandoned", _interleaved,
        ),
        Ablation(
            "due_elsewhere", "What was recorded by another process is found at the next look round.",
            "S10", (2,), "signals", _nothing_is_due,
        ),
        Ablation(
            "early_signals_kept", "A signal that comes before anyone waits for it is kept.",
            "S10", (1,), "signals", _early_signals_dropped,
        ),
        Ablation(
            "signals_as_given", "A signal that came during a call was not seen by that call.",
            "S10", (2,), "signals", _unseen_signals,
        ),
        Ablation(
            "ack_after_commit", "Nothing is acknowledged before it is durable.",
            "S26", (1,), "acceptance", _ack_first,
        ),
        Ablation(
            "event_in_commit", "An event commits with the change it tells of.",
            "S21", (1,), "crashes", _in_a_commit_of_its_own("outbox"),
        ),
        Ablation(
            "intent_in_commit", "A step's intent is durable before its call leaves.",
            "S1", (1, 2), "crashes", _in_a_commit_of_its_own("intent", admits=False),
        ),
        Ablation(
            "key_in_commit", "An idempotency key commits with its operation.",
            "S20", (1,), "acceptance", _in_a_commit_of_its_own("idempotency"),
        ),
        Ablation(
            "refusal_leaves_nothing", "A change is applied whole or not at all.",
            "S20", (1,), "acceptance", _leftovers,
        ),
        Ablation(
            "tombstones", "A removed key is burned: what arrives late is refused (a provider's safeguard).",
            "S4", (2,), "late", _no_tombstones,
        ),
        Ablation(
            "keys_honoured", "The same key twice is one resource (a provider's safeguard).",
            "S2 S3", (2,), "undo", _keys_not_honoured,
        ),
        Ablation(
            "foreign_not_adopted", "What belongs to somebody else is never taken for ours.",
            "S2", (2,), "foreign", _foreign_adopted,
        ),
        Ablation(
            "seeded_order", "The order of a run comes from its seed.",
            "1", (22,), "usual", _unseeded_order, Oracle.REPLAY,
        ),
        Ablation(
            "seeded_ids", "Ids and jitter come from the seed.",
            "1", (22,), "usual", _unseeded_ids, Oracle.REPLAY,
        ),
    )
}  # fmt: skip
"""Every safeguard that can be switched off, by name."""


class Caught(NamedTuple):
    """Lives of one ablation."""

    seeds: int
    caught: int
    first: int | None
    """The first seed that noticed."""
    sentences: Counter[str]
    """Which sentences were broken, in how many lives."""


def hunt(ablation: Ablation, seeds: Sequence[int], *, all_of_them: bool = False) -> Caught:
    """Live these without the safeguard, to the first that notices or all of them."""
    lived = caught = 0
    first: int | None = None
    sentences: Counter[str] = Counter()
    with patched(loop, TURNS_MAX=TURNS_MAX), ablation.off():
        for seed in seeds:
            lived += 1
            wrong = _noticed(ablation, seed)
            if not wrong:
                continue
            caught += 1
            first = seed if first is None else first
            sentences.update({sentence.partition(":")[0] for sentence in wrong})
            if not all_of_them:
                break
    return Caught(lived, caught, first, sentences)


def _noticed(ablation: Ablation, seed: int) -> list[str]:
    one: Lived = live(seed, MIXES[ablation.mix])
    if ablation.oracle is Oracle.INVARIANTS:
        return one.wrong
    again = live(seed, MIXES[ablation.mix])
    return ["same_trace: it differs"] if again.trace != one.trace else []
