"""A claim among others who write: it fences all of an operation, or leaves it to a later one.

Goal: whoever was taken for dead and is not records something while another claims.  Method: the
claim is held up by an advisory lock after its snapshot and before its row locks, or a stranger
holds a row that it wants.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from tenure.adapters.store import postgres
from tenure.adapters.store.postgres import server
from tenure.core.errors import StoreError
from tenure.ports.store import Change, ClaimedOperation, Is, LoadedOperation, Queue, Set
from tenure.testing.contracts.store_rows import intent, lease, operation
from tests.real.postgres.test_postgres_events import stranger
from tests.real.support.postgres import eventually, open_store

pytestmark = pytest.mark.timeout(300)
LOCK = "hashtext(current_schema())"
JUDGED, LOCKED = "SELECT coalesce($5", f"SELECT pg_advisory_xact_lock({LOCK}), coalesce($5"
UNCHANGED = " AND operation.revision = oldest.revision"
NOT_HELD = "FOR UPDATE OF intent SKIP LOCKED"
RECORDED = Change(
    "",
    (Is("operation", ("a",), {"revision": 0}), Is("intent", ("a", "one"), {"token": 1})),
    (Set("operation", ("a",), {"revision": 1}), intent("a", "two", token=1)),
)
"""A record of one who still has the token; the intent of the next step is written with it."""


def rewritten(store: postgres.PostgresStore, old: str, new: str) -> Callable[[], None]:
    """Claim by another statement; the answer undoes that."""
    claim = store._queries["claim"]
    assert claim.count(old) == 1
    store._queries["claim"] = claim.replace(old, new)
    return lambda: store._queries.update(claim=claim)


@asynccontextmanager
async def closing(connection: asyncpg.Connection) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await connection.close()


async def claim(store: postgres.PostgresStore) -> list[ClaimedOperation]:
    return list(await store.claim(Queue.OPERATIONS, "me", limit=99))


async def is_waited_for(holder: asyncpg.Connection) -> bool:
    found: bool = await holder.fetchval(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted"
        " AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))"
    )
    return found


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is held up is not begun anew."""
    monkeypatch.setitem(server.SESSION_SETTINGS, "lock_timeout", "120s")


async def recorded_meanwhile(
    url: str, *, ablate: str = ""
) -> tuple[list[ClaimedOperation], LoadedOperation]:
    """What a claim gets of an operation of which something is recorded after its snapshot."""
    async with open_store(url) as store, open_store(url) as theirs:
        begun = operation("a", state="RUNNING", worker="dead", token=1)
        await store.commit(Change("", (), (begun, intent("a", "one", token=1))))
        if ablate:
            rewritten(store, ablate, "")
        undo = rewritten(store, JUDGED, LOCKED)
        holder = await stranger(url)
        await holder.execute(f"SELECT pg_advisory_lock({LOCK})")
        claiming = asyncio.ensure_future(claim(store))
        await eventually(lambda: is_waited_for(holder))
        assert await theirs.commit(RECORDED) is None
        await holder.close()
        got = await claiming
        undo()
        got = got or await claim(store)
        found = await store.load("a")
        assert found is not None
        return got, found


def fenced_steps(found: LoadedOperation) -> dict[object, bool]:
    """Of every step, whether nobody can record it by an older token, and it counts as called."""
    return {row.step: row.token == 2 and row.unknown_since is not None for row in found.intents}


@pytest.mark.usefixtures("_patient")
def test_what_is_recorded_while_it_is_claimed_is_fenced_as_well(postgres_url: str) -> None:
    got, found = asyncio.run(recorded_meanwhile(postgres_url))
    assert got == [ClaimedOperation("a", 2, None)]
    assert fenced_steps(found) == {"one": True, "two": True}
    assert found.operation.revision == 2


@pytest.mark.usefixtures("_patient")
def test_ablation_an_intent_that_a_claim_did_not_see_is_left_to_the_dead(
    postgres_url: str, tally
) -> None:
    got, found = asyncio.run(recorded_meanwhile(postgres_url, ablate=UNCHANGED))
    assert got == [ClaimedOperation("a", 2, None)]
    assert fenced_steps(found) == {"one": True, "two": False}
    tally.add("ablations")


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(server.SESSION_SETTINGS, "lock_timeout", "0.3s")


async def claimed_beside_a_held_intent(url: str, *, ablate: str = "") -> None:
    names = [f"{n:02}" for n in range(12)]
    begun = [operation(name, state="RUNNING", worker="dead") for name in names]
    steps = [intent(name, step) for name in names for step in ("one", "two")]
    async with open_store(url, patience_seconds=0.2) as store:
        mine = lease("me", store.now() + 60)
        await store.commit(Change("", (), (*begun, *steps, mine)))
        if ablate:
            rewritten(store, ablate, ablate.replace(" SKIP LOCKED", ""))
        holder = await stranger(url)
        async with closing(holder), holder.transaction():
            one = "operation = '05' AND step = 'two'"
            await holder.execute(f"SELECT 1 FROM intent WHERE {one} FOR UPDATE")
            got = await claim(store)
            assert [one.id for one in got] == [name for name in names if name != "05"]
            left = await store.load("05")
            assert left is not None
            assert {left.operation.token, *(row.token for row in left.intents)} == {0}
        assert await claim(store) == [ClaimedOperation("05", 1, None)]


def test_an_operation_of_which_a_stranger_holds_an_intent_is_left_and_the_others_are_not(
    postgres_url: str,
) -> None:
    asyncio.run(claimed_beside_a_held_intent(postgres_url))


@pytest.mark.usefixtures("_hasty")
def test_ablation_a_claim_that_waits_for_an_intent_gets_nothing(postgres_url: str, tally) -> None:
    with pytest.raises(StoreError, match="another session has locked a row of this"):
        asyncio.run(claimed_beside_a_held_intent(postgres_url, ablate=NOT_HELD))
    tally.add("ablations")
