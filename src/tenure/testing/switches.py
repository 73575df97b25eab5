"""How each safeguard is taken out of the real code: patches that last as long as a `with`.

`tenure.testing.ablations` says what each is for.  Nothing of the product imports this, and no
setting of it reaches what is done here.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

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
from tenure.ports.provider import Presence
from tenure.ports.store import Change, Claimed, Put, Refused
from tenure.testing import loop
from tenure.testing.fakes import FakeProvider
from tenure.testing.loop import SeededLoop
from tenure.testing.slow_disk import SlowDisk, SlowStore

Off = Callable[[], AbstractContextManager[None]]


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


def owed(choose: Callable[[saga.Progress, list[Any]], list[Any]]) -> Off:
    real = saga.owed

    def owed(plan: Any, progress: saga.Progress) -> list[Any]:
        return choose(progress, real(plan, progress))

    return lambda: patched(saga, owed=owed)


def moves(change: Callable[[saga.Progress, Move], Move]) -> Off:
    real = saga.next_moves

    def next_moves(plan: Any, progress: saga.Progress, intents: Any, now: float) -> Moves:
        moves = real(plan, progress, intents, now)
        return moves._replace(now=tuple(change(progress, move) for move in moves.now))

    return lambda: patched(saga, next_moves=next_moves)


def settle(before: Ended | None = None, after: Callable[[Move, Settled], Settled] | None = None) -> Off:
    real = saga.settle

    def settle(progress: Any, intent: Any, move: Move, ending: Ending, **given: Any) -> Settled:
        if before is not None:
            move, ending = before(move, ending)
        settled = real(progress, intent, move, ending, **given)
        return settled if after is None else after(move, settled)

    return lambda: patched(saga, settle=settle)


def repeat_unasked(_: saga.Progress, move: Move) -> Move:
    return move._replace(act=Act.DO) if move.act is Act.INSPECT else move


def repeat_unknown(progress: saga.Progress, move: Move) -> Move:
    forward = progress.compensating_at is None
    return move._replace(act=Act.DO) if move.act is Act.GIVE_UP and forward else move


def timeout_is_refusal(move: Move, ending: Ending) -> tuple[Move, Ending]:
    unknown = move.act is Act.DO and isinstance(ending, OutcomeUnknown)
    return move, Rejected(str(ending)) if unknown else ending


def look_is_call(move: Move, ending: Ending) -> tuple[Move, Ending]:
    refused = move.act is Act.INSPECT and isinstance(ending, Rejected)
    return (move._replace(act=Act.DO) if refused else move), ending


def undo_once(move: Move, ending: Ending) -> tuple[Move, Ending]:
    failed = move.act is Act.UNDO and not isinstance(ending, Done | Absent)
    return move, Done() if failed else ending


def at_once_visible(move: Move, ending: Ending) -> tuple[Move, Ending]:
    limits = replace(move.step.limits, visible_seconds=0.0)
    return move._replace(step=replace(move.step, limits=limits)), ending


def say_nothing_of_stuck(move: Move, settled: Settled) -> Settled:
    stuck = settled.record is not None and settled.record[0] is Noted.STUCK
    return settled._replace(record=None) if stuck and move.act is Act.UNDO else settled


def forget_unknown(move: Move, settled: Settled) -> Settled:
    if move.act is not Act.GIVE_UP:
        return settled
    return settled._replace(intent={"due_at": None})


def unseen_signals() -> AbstractContextManager[None]:
    real = saga.settle

    def settle(progress: saga.Progress, *given: Any, **named: Any) -> Settled:
        return real(progress, *given, **(named | {"signals": progress.signals}))

    return patched(saga, settle=settle)


def pivot_turned_back() -> AbstractContextManager[None]:
    real = saga._overdue  # noqa: SLF001

    def overdue(step: Any, ending: Any, *, unknown: bool) -> Any:
        if step.kind is Kind.PIVOT:
            return Noted.COMPENSATING, {"why": f"{step.name} was not done in time", "step": step.name}
        return real(step, ending, unknown=unknown)

    return patched(saga, _overdue=overdue)


def late_cancel() -> AbstractContextManager[None]:
    return patched(saga, past_pivot=lambda _plan, _progress: False)


def undo_beside_do() -> AbstractContextManager[None]:
    real = saga.next_moves

    def next_moves(plan: Any, progress: saga.Progress, intents: Any, now: float) -> Moves:
        if progress.compensating_at is not None:
            intents = {name: replace(intent, busy=False) for name, intent in intents.items()}
        return real(plan, progress, intents, now)

    return patched(saga, next_moves=next_moves)


# --- how it is performed -----------------------------------------------------------------------------------


def random_keys() -> AbstractContextManager[None]:
    real = Live.key_of

    def key_of(self: Live, step: Any) -> Any:
        key = real(self, step)
        drawn = asyncio.get_running_loop().random.getrandbits(32)  # type: ignore[attr-defined]
        return key._replace(text=f"{key.text[:24]}{drawn:08x}")

    return patched(Live, key_of=key_of)


def performing(change: Callable[[Advance, Live, Move], Move]) -> Off:
    real = Advance.perform

    def perform(self: Advance, live: Live, move: Move, *given: Any) -> Any:
        return real(self, live, change(self, live, move), *given)

    return lambda: patched(Advance, perform=perform)


def look_no_more(self: Advance, live: Live, move: Move) -> Move:
    """Past its deadline a step counts as not done, without a look."""

    async def overdue(_: Any) -> Ending:
        return NotYet()

    late = self._store.now() >= saga.deadline_of(live.progress, move.step)  # noqa: SLF001
    if late and move.act in {Act.DO, Act.INSPECT} and move.step.kind is Kind.COMPENSATABLE:
        step = replace(move.step, do=overdue, inspect=overdue)
        return Move(Act.DO, step)
    return move


def undo_at_once(_: Advance, live: Live, move: Move) -> Move:
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


def no_turns(_: Advance, live: Live, move: Move) -> Move:
    live.lock = None
    return move


def interleaved() -> AbstractContextManager[None]:
    real = Advance.perform

    def perform(self: Advance, live: Live, move: Move, *given: Any) -> Any:
        coroutine = real(self, live, move, *given)
        live.lock = None
        return coroutine

    return patched(Advance, perform=perform)


def from_the_claim() -> AbstractContextManager[None]:
    real = Advance.load
    since: dict[tuple[str, int], float] = {}

    async def load(self: Advance, operation: str, token: int) -> Live | None:
        loaded = await real(self, operation, token)
        if loaded is not None and token > 1:
            began = since.setdefault((operation, token), self._store.now())  # noqa: SLF001
            loaded.progress.since = max(loaded.progress.since, began)
        return loaded

    return patched(Advance, load=load)


def own_calls_forgotten() -> AbstractContextManager[None]:
    real = Live.merge

    def merge(self: Live, rows: Any, absent: set[str]) -> None:
        real(self, rows, absent | set(self.intents))

    return patched(Live, merge=merge)


def reads_not_repeated() -> AbstractContextManager[None]:
    async def once(read_it: Callable[[], Any]) -> Any:
        return await read_it()

    return patched(advance, _surely=once)


@contextmanager
def no_fence() -> Iterator[None]:
    async def refresh(self: Advance, live: Live) -> None:
        loaded = await self._store.load(live.id)  # noqa: SLF001
        assert loaded is not None
        live.take(loaded.operation)
        live.merge(loaded.intents, live.fold(loaded.journal))

    with without_guards("intent", "token")(), patched(Advance, refresh=refresh):
        yield


# --- what callers ask --------------------------------------------------------------------------------------


def early_signals_dropped() -> AbstractContextManager[None]:
    real = operations.signal

    async def signal(plane: Any, tenant: str, operation: str, **given: Any) -> Any:
        loaded = await plane.store.load(operation)
        if loaded is not None and not any(row["waiting_on"] for row in loaded.intents):
            return await operations.get(plane, tenant, operation)
        return await real(plane, tenant, operation, **given)

    return patched(operations, signal=signal)


def same_generation() -> AbstractContextManager[None]:
    real = operations._agent  # noqa: SLF001

    async def agent(plane: Any, command: Any, now: float) -> Any:
        uid, generation, guards, writes = await real(plane, command, now)
        return (uid, generation, guards, writes) if generation == 1 else (uid, 1, [], [])

    return patched(operations, _agent=agent)


# --- the store ---------------------------------------------------------------------------------------------


def without_guards(table: str, column: str) -> Off:
    real = Tables.apply

    def apply(self: Tables, change: Change) -> Refused | None:
        guards = tuple(g for g in change.guards if g.table != table or column not in g.said)
        return real(self, change._replace(guards=guards))

    return lambda: patched(Tables, apply=apply)


def without_put(table: str) -> Off:
    real = Tables.apply

    def apply(self: Tables, change: Change) -> Refused | None:
        writes = tuple(w for w in change.writes if w.table != table or not isinstance(w, Put))
        return real(self, change._replace(writes=writes))

    return lambda: patched(Tables, apply=apply)


def in_a_commit_of_its_own(table: str, *, admits: bool = True) -> Off:
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


def leftovers() -> AbstractContextManager[None]:
    real = Tables.apply

    def apply(self: Tables, change: Change) -> Refused | None:
        refused = real(self, change)
        if refused is not None and isinstance(refused.what, Put):
            puts = [write for write in change.writes if isinstance(write, Put)]
            for put in puts[: puts.index(refused.what)]:
                real(self, Change("", (), (put,)))
        return refused

    return patched(Tables, apply=apply)


def ack_first() -> AbstractContextManager[None]:
    real = SlowStore.commit

    def commit(self: SlowStore, change: Change) -> Any:
        durable = real(self, change)
        if not change.admits:
            return durable
        hasty: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hasty.set_result(None)
        return hasty

    return patched(SlowStore, commit=commit)


def commit_error_is_failure() -> AbstractContextManager[None]:
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


def claims(after: Callable[[dict[str, Any], list[dict[str, Any]], dict[str, Any]], int]) -> Off:
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


def same_token(row: dict[str, Any], intents: list[dict[str, Any]], _: dict[str, Any]) -> int:
    row["token"] -= 1
    for intent in intents:
        if intent["state"] != "BURNED":
            intent["token"] = row["token"]
    return int(row["token"])


def same_revision(row: dict[str, Any], _: list[dict[str, Any]], __: dict[str, Any]) -> int:
    row["revision"] -= 1
    return int(row["token"])


def as_if_called_by_nobody(
    row: dict[str, Any], intents: list[dict[str, Any]], before: dict[str, Any]
) -> int:
    for intent in intents:
        intent["unknown_since"] = before[intent["step"]]
    return int(row["token"])


def claim_forward_only() -> AbstractContextManager[None]:
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


def claim_by_own_clock() -> AbstractContextManager[None]:
    real = SlowDisk.claim

    def claim(self: SlowDisk, store: SlowStore, worker: str, limit: int) -> list[Claimed]:
        alive = self.witness.held(self.tables, store.now())
        with patched(SlowDisk, claim=real):
            claimed = self.tables.claim(worker, limit=limit, now=store.now() + store.skew)
        self.witness.claimed(store.name, worker, claimed, alive)
        return claimed

    return patched(SlowDisk, claim=claim)


def nothing_is_due() -> AbstractContextManager[None]:
    async def list_due(_: MemoryStore, __: str) -> list[Claimed]:
        return []

    return patched(MemoryStore, list_due=list_due)


# --- providers, and the harness itself ---------------------------------------------------------------------


def no_tombstones() -> AbstractContextManager[None]:
    real = FakeProvider._remove  # noqa: SLF001

    def remove(self: FakeProvider, key: Any, fault: Any) -> None:
        real(self, key, fault)
        self._world.burned.pop((self.name, key.text), None)  # noqa: SLF001

    return patched(FakeProvider, _remove=remove)


def keys_not_honoured() -> AbstractContextManager[None]:
    real = FakeProvider._ensure  # noqa: SLF001

    def ensure(self: FakeProvider, *given: Any) -> Any:
        self._idempotent = False  # noqa: SLF001
        return real(self, *given)

    return patched(FakeProvider, _ensure=ensure)


def foreign_adopted() -> AbstractContextManager[None]:
    real = FakeProvider._inspect  # noqa: SLF001

    def inspect(self: FakeProvider, key: Any, fault: Any) -> Any:
        seen = real(self, key, fault)
        foreign = seen.presence is Presence.FOREIGN
        return seen._replace(presence=Presence.READY) if foreign else seen

    return patched(FakeProvider, _inspect=inspect)


def unseeded_order() -> AbstractContextManager[None]:
    real = SeededLoop.__init__

    def begin(self: SeededLoop, seed: int) -> None:
        real(self, seed)
        self.random = random.SystemRandom()

    return patched(SeededLoop, __init__=begin)


def unseeded_ids() -> AbstractContextManager[None]:
    drawn = random.SystemRandom()
    return patched(loop.SeededEntropy, bits=lambda _: drawn.getrandbits(62))
