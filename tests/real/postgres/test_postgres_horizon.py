"""Who holds events back: another process of the plane, of any release, and no stranger.

Goal: RULES S21 and P17 on a server that is shared with others. Method: transactions are left open
by whoever can be thought of, here and in another database, on the newest and the oldest server;
what is told meanwhile is compared with what was committed.
"""

import asyncio
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from tenure.adapters.store import postgres
from tenure.adapters.store.postgres import horizon
from tenure.core.records import CursorRecord
from tenure.ports.store import Change, Next, Put
from tenure.testing.contracts.store_rows import event
from tenure.testing.patches import patched
from tenure.testing.servers import PostgresServer
from tests.real.postgres.test_postgres_events import _PUT, neighbour, stranger
from tests.real.support.postgres import open_store

pytestmark = pytest.mark.timeout(120)
_NUMBER = "SELECT pg_current_xact_id()::text"
NOBODY = "SELECT '{}'::xid[]"
EVERYBODY = "SELECT array_agg(backend_xid) FROM pg_stat_activity WHERE backend_xid IS NOT NULL"


@pytest.fixture(params=("postgres_server", "old_postgres_server"))
def url(request: pytest.FixtureRequest) -> str:
    """A fresh schema on the newest server, and on the oldest."""
    server: PostgresServer = request.getfixturevalue(request.param)
    return f"{server.url}?schema=t_{secrets.token_hex(6)}"


@asynccontextmanager
async def elsewhere(url: str) -> AsyncIterator[str]:
    """A database beside the plane's, on the same server."""
    name = f"d_{secrets.token_hex(6)}"
    direct = await stranger(url)
    try:
        await direct.execute(f"CREATE DATABASE {name}")
        yield url.replace("/postgres?", f"/{name}?")
        await direct.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await direct.close()


@asynccontextmanager
async def left_open(connecting: Awaitable[asyncpg.Connection]) -> AsyncIterator[None]:
    """A transaction that has a number, and whose session does nothing more."""
    connection = await connecting
    try:
        await connection.execute("BEGIN")
        await connection.fetchval(_NUMBER)
        yield
    finally:
        await connection.close()


@asynccontextmanager
async def idle(url: str) -> AsyncIterator[None]:
    async with left_open(stranger(url)):
        yield


@asynccontextmanager
async def in_another_database(url: str) -> AsyncIterator[None]:
    async with elsewhere(url) as other, left_open(stranger(other)):
        yield


@asynccontextmanager
async def another_plane_in_another_database(url: str) -> AsyncIterator[None]:
    async with elsewhere(url) as other, left_open(neighbour(other)):
        yield


@asynccontextmanager
async def prepared_transaction(url: str) -> AsyncIterator[None]:
    """Forgotten, and nobody's session: it outlives a restart of the server."""
    name = secrets.token_hex(6)
    direct = await stranger(url)
    try:
        await direct.execute("BEGIN")
        await direct.fetchval(_NUMBER)
        await direct.execute(f"PREPARE TRANSACTION '{name}'")
        yield
        await direct.execute(f"ROLLBACK PREPARED '{name}'")
    finally:
        await direct.close()


@asynccontextmanager
async def under_a_plain_user(url: str) -> AsyncIterator[str]:
    """The plane's address under the name of a user with no more rights than it needs."""
    name = f"r_{secrets.token_hex(6)}"
    direct = await stranger(url)
    try:
        await direct.execute(f"CREATE ROLE {name} LOGIN")
        await direct.execute(f"GRANT CREATE ON DATABASE postgres TO {name}")
        yield url.replace("//tenure@", f"//{name}@")
        await direct.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")
    finally:
        await direct.close()


STRANGERS = (idle, in_another_database, another_plane_in_another_database, prepared_transaction)


async def told_beside(url: str, other_session: Callable[[str], Any]) -> list[object]:
    """What a reader and a new subscriber are told while somebody has a transaction open."""
    fresh: dict[str, Any] = {"attempts": 0, "due_at": 0.0, "why": "", "missed": 0}
    async with open_store(url) as store, other_session(url):
        assert await store.commit(Change("", (), (event("earlier"),))) is None
        cursor = Put("cursor", ("mine",), {**fresh, "position": Next("outbox")})
        assert await store.commit(Change("", (), (cursor,))) is None
        assert await store.commit(Change("", (), (event("later"),))) is None
        mine = await store.find(CursorRecord, ("mine",))
        assert mine is not None
        rows = await store.list_events()
        since = await store.list_events(after=mine.position)
        assert await store.newest_event() == (rows[-1].position if rows else 0)
        return [[row.type for row in types] for types in (rows, since)]


@pytest.mark.parametrize(
    "other_session", STRANGERS, ids=lambda other_session: other_session.__name__
)
def test_a_stranger_holds_nothing_back(url: str, other_session: Callable[[str], Any]) -> None:
    assert asyncio.run(told_beside(url, other_session)) == [["earlier", "later"], ["later"]]


@pytest.mark.parametrize(
    "other_session", STRANGERS, ids=lambda other_session: other_session.__name__
)
def test_ablation_if_strangers_count_nothing_is_told(
    url: str, other_session: Callable[[str], Any], tally
) -> None:
    with patched(horizon, FOREIGN_TRANSACTIONS=NOBODY):
        assert asyncio.run(told_beside(url, other_session)) == [[], []]
    tally.add("ablations")


def test_a_plane_whose_user_may_do_little_knows_neighbours_from_strangers_of_other_users(
    url: str,
) -> None:
    """Of others' sessions such a user sees the name and the transaction, and no more is needed."""

    async def scenario() -> list[Any]:
        types = []
        async with under_a_plain_user(url) as plain, open_store(plain) as store:
            for connect in (stranger, neighbour):  # both as the server's owner
                async with left_open(connect(url)):
                    await store.commit(Change("", (), (event(connect.__name__),)))
                    types.append([row.type for row in await store.list_events()])
            types.append([row.type for row in await store.list_events()])
        return types

    assert asyncio.run(scenario()) == [
        ["stranger"],
        ["stranger"],
        ["stranger", "neighbour"],
    ]


async def names_of_sessions(url: str) -> set[str]:
    """What the sessions that an open store has made are called."""
    ask = "SELECT pid, application_name FROM pg_stat_activity WHERE datname IS NOT NULL"
    direct = await stranger(url)
    try:
        before = {row["pid"] for row in await direct.fetch(ask)}
        async with open_store(url) as store:
            assert await store.commit(Change("", (), (event("told"),))) is None
            assert len(await store.list_events()) == 1
            found = await direct.fetch(ask)
    finally:
        await direct.close()
    return {str(row["application_name"]) for row in found if row["pid"] not in before}


@pytest.mark.parametrize("through_pooler", [False, True])
def test_every_session_of_a_store_is_named_as_ours(
    postgres_url: str, *, through_pooler: bool
) -> None:
    """Also behind a pooler that opens sessions under a name of its own."""
    real = asyncpg.connect

    async def connect(url: str, *, server_settings: dict[str, str], **rest: Any) -> Any:
        named = {"application_name": "pooler"} if through_pooler else {}
        return await real(url, server_settings={**server_settings, **named}, **rest)

    with patched(asyncpg, connect=connect):
        names = asyncio.run(names_of_sessions(postgres_url)) - {"pooler"}
    assert len(names) == 3, "one that writes, one that reads, one beside"
    assert all(name.startswith(horizon.SESSION_PREFIX) for name in names)


async def busy(url: str, *, seed: int, many: int) -> tuple[list[object], set[object]]:
    """What a follower was told, and all that was committed, on a server where all are busy.

    Neighbours take a number, dawdle, and only then write, as a batch that waits for a row does.
    """
    chance = random.Random(seed)
    done = asyncio.Event()

    async def strange(place: str) -> None:
        connection = await stranger(place)
        while not done.is_set():
            await connection.execute("BEGIN")
            await connection.fetchval(_NUMBER)
            await asyncio.sleep(chance.choice((0.0, 0.001, 0.02, 0.2)))
            await connection.execute(chance.choice(("COMMIT", "ROLLBACK")))
        await connection.close()

    async def dawdle(name: str) -> None:
        connection = await neighbour(url)
        for number in range(many):
            await connection.execute("BEGIN")
            await connection.fetchval(_NUMBER)
            await asyncio.sleep(chance.choice((0.0, 0.001, 0.01)))
            await connection.execute(_PUT, f"{name}.{number}")
            await asyncio.sleep(chance.choice((0.0, 0.001, 0.01)))
            await connection.execute("COMMIT")
        await connection.close()

    async def write(store: postgres.PostgresStore, name: str) -> None:
        for number in range(many):
            await store.commit(Change("", (), (event(f"{name}.{number}"),)))

    async def follow(store: postgres.PostgresStore, types: list[object]) -> None:
        after = newest = 0
        while True:
            last = done.is_set()
            for row in await store.list_events(after=after, limit=7):
                types.append(row.type)
                after = row.position
            found = await store.newest_event()
            assert found >= newest, "the horizon went back"
            newest = found
            if last and after == newest:
                return

    types: list[object] = []
    async with open_store(url) as one, open_store(url) as two, elsewhere(url) as other:
        following = asyncio.create_task(follow(two, types))
        strangers = [asyncio.create_task(strange(place)) for place in (url, url, other)]
        await asyncio.gather(
            *(dawdle(f"neighbour {n}") for n in range(3)), write(one, "one"), write(two, "two")
        )
        done.set()
        await asyncio.gather(following, *strangers)
    names = ("neighbour 0", "neighbour 1", "neighbour 2", "one", "two")
    return types, {f"{name}.{number}" for name in names for number in range(many)}


def test_beside_strangers_none_is_skipped_none_told_twice_and_nothing_goes_back(url: str) -> None:
    types, committed = asyncio.run(busy(url, seed=7, many=60))
    assert len(types) == len(committed)
    assert set(types) == committed


def test_ablation_if_neighbours_are_taken_for_strangers_some_are_skipped(
    postgres_url: str, tally
) -> None:
    with patched(horizon, FOREIGN_TRANSACTIONS=EVERYBODY):
        types, committed = asyncio.run(busy(postgres_url, seed=7, many=60))
    assert set(types) < committed
    tally.add("ablations")
