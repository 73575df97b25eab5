"""How the safeguards of stores, providers and the simulator itself are taken out.

The other half of `proofs.operations.mutations`.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from msgspec.structs import replace

from proofs.harness.slow_disk import SlowDisk, SlowStore
from tenure.core.errors import StoreError
from tenure.ports.provider import Presence
from tenure.ports.store import Change, ClaimedOperation, CommitRefusal, Put
from tenure.testing import loop
from tenure.testing.fakes import FakeProvider
from tenure.testing.loop import SeededLoop
from tenure.testing.memory_store import MemoryStore, Tables
from tenure.testing.patches import Off, patched

# --- the store ----------------------------------------------------------------------------------


def without_guards(table: str, column: str) -> Off:
    """Strip a guard off every change."""
    real = Tables.apply

    def apply(self: Tables, change: Change) -> CommitRefusal | None:
        change = change.expand_prepared()
        guards = tuple(g for g in change.guards if g.table != table or column not in g.columns)
        return real(self, replace(change, guards=guards))

    return lambda: patched(Tables, apply=apply)


def in_a_commit_of_its_own(table: str, *, is_new_work: bool = True) -> Off:
    """New rows of this table follow in a second commit, when the first has been answered."""
    real = SlowStore.commit

    def commit(self: SlowStore, change: Change) -> Any:
        whole = change.expand_prepared()
        late = tuple(w for w in whole.writes if w.table == table and isinstance(w, Put))
        if not late or (change.is_new_work and not is_new_work):
            return real(self, change)
        first = tuple(w for w in whole.writes if w not in late)
        answer = real(self, replace(whole, writes=first))

        def follow(commit_future: "asyncio.Future[Any]") -> None:
            if commit_future.exception() is None and commit_future.result() is None:
                _ = real(self, Change("", (), late))

        answer.add_done_callback(follow)
        return answer

    return lambda: patched(SlowStore, commit=commit)


def leftovers() -> AbstractContextManager[None]:
    """Leave behind what was put before a row refused."""
    real = Tables.apply

    def apply(self: Tables, change: Change) -> CommitRefusal | None:
        refused = real(self, change)
        if refused is not None and isinstance(refused.what, Put):
            puts = change.expand_prepared().writes
            for put in puts[: puts.index(refused.what)]:
                real(self, Change("", (), (put,) if isinstance(put, Put) else ()))
        return refused

    return patched(Tables, apply=apply)


def ack_first() -> AbstractContextManager[None]:
    """Answer whoever asks for work before it is on disk."""
    real = SlowStore.commit

    def commit(self: SlowStore, change: Change) -> Any:
        durable = real(self, change)
        if not change.is_new_work:
            return durable
        hasty: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hasty.set_result(None)
        return hasty

    return patched(SlowStore, commit=commit)


def commit_error_is_failure() -> AbstractContextManager[None]:
    """Take a failed COMMIT for one that kept nothing, and go on."""
    real = SlowStore._write  # noqa: SLF001

    def write(self: SlowStore) -> None:
        if self._failing is None:
            real(self)
            return
        applied, self._failing = self._failing, None
        batch, self._handed_in = self._handed_in, []
        for _, work in batch if applied else ():
            self._apply(work)
        failed = [StoreError("the disk refused: nothing was kept") for _ in batch]
        asyncio.get_running_loop().call_soon(self._tell, batch, failed)

    return patched(SlowStore, _write=write)


def claims(after: Callable[[dict[str, Any], list[dict[str, Any]], dict[str, Any]], int]) -> Off:
    """Claim, then take something back of each claimed operation.

    `after` is given its row, its intents, and since when each was unknown; it says the token.
    """
    real = Tables.claim

    def claim(self: Tables, worker: str, **kwargs: Any) -> list[ClaimedOperation]:
        unknown = {key: row["unknown_since"] for key, row in self.rows["intent"].items()}
        claimed = []
        for one in real(self, worker, **kwargs):
            row, intents = self.rows["operation"][one.id,], self.parts("intent", one.id)
            before = {str(i["step"]): unknown.get((one.id, str(i["step"]))) for i in intents}
            claimed.append(one._replace(token=after(row, intents, before)))
        return claimed

    return lambda: patched(Tables, claim=claim)


def same_token(row: dict[str, Any], intents: list[dict[str, Any]], _: dict[str, Any]) -> int:
    """The token stays."""
    row["token"] -= 1
    for intent in intents:
        if intent["state"] != "BURNED":
            intent["token"] = row["token"]
    return int(row["token"])


def same_revision(row: dict[str, Any], _: list[dict[str, Any]], __: dict[str, Any]) -> int:
    """The revision stays."""
    row["revision"] -= 1
    return int(row["token"])


def as_if_called_by_nobody(
    row: dict[str, Any], intents: list[dict[str, Any]], before: dict[str, Any]
) -> int:
    """What may have been called counts as never called."""
    for intent in intents:
        intent["unknown_since"] = before[intent["step"]]
    return int(row["token"])


def claim_forward_only() -> AbstractContextManager[None]:
    """Leave what is going back, or stuck, with the dead."""
    real = Tables.claim

    def claim(self: Tables, worker: str, *, now: float, **kwargs: Any) -> list[ClaimedOperation]:
        hidden = [
            row
            for row in self.rows["operation"].values()
            if row["ended_at"] is None and row["state"] in {"COMPENSATING", "STUCK"}
        ]
        for row in hidden:
            row["ended_at"] = now
        claimed = real(self, worker, now=now, **kwargs)
        for row in hidden:
            row["ended_at"] = None
        return claimed

    return patched(Tables, claim=claim)


def claim_by_own_clock() -> AbstractContextManager[None]:
    """Judge leases by the claimer's own clock."""
    real = SlowDisk.claim

    def claim(
        self: SlowDisk, store: SlowStore, worker: str, limit: int, *_: Any
    ) -> list[ClaimedOperation]:
        alive = self.recorder.live_holders(self.tables, store.now())
        with patched(SlowDisk, claim=real):
            claimed = self.tables.claim(worker, limit=limit, now=store.now() + store.skew)
        self.recorder.add_claims(store.name, worker, claimed, alive)
        return claimed

    return patched(SlowDisk, claim=claim)


def nothing_is_due() -> AbstractContextManager[None]:
    """Find nothing that others have recorded."""

    async def list_due(_: MemoryStore, __: str) -> list[ClaimedOperation]:
        return []

    return patched(MemoryStore, list_due=list_due)


# --- providers, and the harness itself ---------------------------------------------------------


def no_tombstones() -> AbstractContextManager[None]:
    """Burn no key."""
    real = FakeProvider._remove  # noqa: SLF001

    def remove(self: FakeProvider, key: Any, fault: Any) -> None:
        real(self, key, fault)
        self._world.burned.pop((self.name, key.text), None)

    return patched(FakeProvider, _remove=remove)


def keys_not_honoured() -> AbstractContextManager[None]:
    """Make another at every request, whatever its key."""
    real = FakeProvider._ensure  # noqa: SLF001

    def ensure(self: FakeProvider, *args: Any) -> Any:
        self._idempotent = False
        return real(self, *args)

    return patched(FakeProvider, _ensure=ensure)


def foreign_adopted() -> AbstractContextManager[None]:
    """Take what is somebody else's for ours."""
    real = FakeProvider._inspect  # noqa: SLF001

    def inspect(self: FakeProvider, key: Any, fault: Any) -> Any:
        seen = real(self, key, fault)
        foreign = seen.presence is Presence.FOREIGN
        return seen._replace(presence=Presence.READY) if foreign else seen

    return patched(FakeProvider, _inspect=inspect)


def unseeded_order() -> AbstractContextManager[None]:
    """Draw the order of a run from the machine."""
    real = SeededLoop.__init__

    def begin(self: SeededLoop, seed: int) -> None:
        real(self, seed)
        self.random = random.SystemRandom()

    return patched(SeededLoop, __init__=begin)


def unseeded_ids() -> AbstractContextManager[None]:
    """Draw ids from the machine."""
    drawn = random.SystemRandom()
    return patched(loop.SeededEntropy, bits=lambda _: drawn.getrandbits(62))
