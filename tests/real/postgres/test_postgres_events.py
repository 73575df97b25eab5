"""Sequence order is not commit order: no event that commits late is skipped, none is told twice.

Goal: RULES S21 on a real server. Method: a transaction of another process takes a position and
stays open while the store commits a later one; whoever reads meanwhile must find both in the end.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest
from msgspec.structs import replace

from proofs.kills.audit import PLANS, shelves_of
from tenure.adapters.store import postgres
from tenure.adapters.store.postgres import functions, horizon, parts
from tenure.adapters.store.postgres.schema import shift_positions_after_restore
from tenure.app.leader import Leader
from tenure.app.operations.outbox_rows import event_sequence_of
from tenure.core.errors import LimitExceeded
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.retention import Retention, RetentionLimits
from tenure.ports.store import Change, Is, Put, WakeHint, combine_hints
from tenure.settings import Settings
from tenure.testing.contracts.store_rows import event, lease
from tenure.testing.patches import patched
from tenure.wiring import run_plane
from tests.real.support.postgres import eventually, open_store
from tests.unit.support import late_reconcilers

pytestmark = pytest.mark.timeout(300)
_PUT = (
    "INSERT INTO outbox (position, tenant, agent, operation, type, at, body)"
    " VALUES (pg_current_xact_id()::text::bigint << 16, 'north', 'a', 'o', $1, 1.0, '{}')"
)


async def stranger(url: str, *, name: str = "psql") -> asyncpg.Connection:
    """Somebody else who writes to the same schema."""
    parts = urlsplit(url)
    schema = parse_qs(parts.query)["schema"][0]
    plain = parts._replace(query="").geturl()
    settings = {"search_path": schema, "application_name": name}
    return await asyncpg.connect(plain, server_settings=settings)


async def neighbour(url: str) -> asyncpg.Connection:
    """A session of another process of this plane, of whatever release."""
    return await stranger(url, name="tenure neighbour")


async def read_on(store: postgres.PostgresStore, rows: list[Any]) -> None:
    """Read what is new after the last row read, as a relay does."""
    after = rows[-1].position if rows else 0
    rows += await store.list_events(after=after)


async def read_types(url: str, *, read: Callable[..., Awaitable[None]] = read_on) -> list[str]:
    """T1 takes position 1 and stays open, T2 commits 2, read, T1 commits, read."""
    async with open_store(url) as store:
        first = await neighbour(url)
        try:
            open_one = first.transaction()
            await open_one.start()
            await first.execute(_PUT, "first")
            assert await store.commit(Change("", (), (event("second"),))) is None
            rows: list[Any] = []
            await read(store, rows)
            await open_one.commit()
            await read(store, rows)
            await read(store, rows)
        finally:
            await first.close()
        return [row.type for row in rows]


def test_an_event_that_commits_late_is_told_and_none_twice(postgres_url: str) -> None:
    assert asyncio.run(read_types(postgres_url)) == ["first", "second"]


def test_ablation_without_the_horizon_the_late_one_is_lost(postgres_url: str, tally) -> None:
    everything = horizon.LIST_EVENTS.replace("AND position <", "AND $1::xid[] IS NOT NULL AND 0 <")
    with patched(horizon, LIST_EVENTS=everything):
        assert asyncio.run(read_types(postgres_url)) == ["second"]
    tally.add("ablations")


def test_what_begins_first_is_read_first_whoever_commits_first(postgres_url: str) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url) as store:
            older, newer = await neighbour(postgres_url), await neighbour(postgres_url)
            first, second = older.transaction(), newer.transaction()
            await first.start()
            await older.fetchval("SELECT pg_current_xact_id()::text")
            await second.start()
            await newer.execute(_PUT, "newer")
            await older.execute(_PUT, "older")
            await second.commit()
            assert list(await store.list_events()) == []
            assert await store.newest_event() == 0, "nobody begins beyond what is not told yet"
            await first.commit()
            page = await store.list_events(limit=1)
            rest = await store.list_events(after=page[-1].position)
            assert [row.type for row in (*page, *rest)] == ["older", "newer"]
            await older.close()
            await newer.close()

    asyncio.run(scenario())


def test_events_restored_from_another_server_are_told_at_once_and_in_order(
    postgres_url: str,
) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url) as store:
            for name in ("one", "two", "three"):
                await store.commit(Change("", (), (event(name),)))
            other = await stranger(postgres_url)
            # As a dump of a server that has counted far more transactions would leave them.
            await other.execute("UPDATE outbox SET position = position + (4000000000 << 16)")
            assert len(await store.list_events()) == 0
            await shift_positions_after_restore(other)
            await shift_positions_after_restore(other)
            await other.close()
            rest = await store.list_events(limit=2)
            assert [row.type for row in rest] == ["one", "two"]
            await store.commit(Change("", (), (event("four"),)))
            assert [row.type for row in await store.list_events()] == [
                "one", "two", "three", "four",
            ]  # fmt: skip

    asyncio.run(scenario())


def test_the_cap_counts_events_though_positions_leap(postgres_url: str, tmp_path) -> None:
    """A position is a transaction's number and more: a few of them span what the cap allows."""

    async def scenario() -> None:
        providers = shelves_of(tmp_path)
        settings = Settings(store=postgres_url)
        async with run_plane(settings, plans=PLANS, providers=providers) as plane:
            for number in range(40):
                await plane.store.commit(Change("", (), (event(str(number)),)))
            leader = Leader(plane, "trim")
            await leader.renew()
            first, *_, last = await plane.store.list_events()
            rows_max = 1_000

            async def no_routes() -> dict[str, DestinationRoute]:
                return {}

            assert last.position - first.position > rows_max
            trims = Retention(plane, leader, no_routes, RetentionLimits(1e10, rows_max))
            await trims.trim()
            assert len(await plane.store.list_events()) == 40
            trims.limits = RetentionLimits(1e10, 25)
            await trims.trim()
            assert len(await plane.store.list_events()) == 25

    asyncio.run(scenario())


# ------------------------------------------------------------------------- the order for each agent

AGENT = "a" * 32


def numbered_event(kind: str) -> Put:
    """An event of the agent, which has a number among those of its own."""
    put = event(kind)
    return replace(put, row={**put.row, "agent": AGENT, "sequence": event_sequence_of(AGENT)})


async def commit_out_of_order(url: str) -> list[tuple[str, int]]:
    """Two processes tell of one agent; the first to begin is the second to commit.

    Its batch holds one row, and waits for another behind somebody else, when the other begins.
    """
    async with open_store(url) as early, open_store(url) as late:
        rows = (lease("free", 1.0), lease("held", 1.0))
        assert await early.commit(Change("", (), (*rows, numbered_event("before")))) is None
        other = await stranger(url)
        try:
            holding = other.transaction()
            await holding.start()
            await other.execute("SELECT 1 FROM lease WHERE name = 'worker/held' FOR UPDATE")
            names = ("free", "held")
            guards = tuple(Is("lease", (f"worker/{name}",), {"token": 1}) for name in names)
            waiting = asyncio.ensure_future(
                early.commit(Change("", guards, (numbered_event("began first"),)))
            )

            async def waits() -> bool:
                ask = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                return bool(await other.fetchval(ask))

            await eventually(waits)
            assert await late.commit(Change("", (), (numbered_event("committed first"),))) is None
            await holding.rollback()
            assert await waiting is None
        finally:
            await other.close()
        return [(r.type, r.sequence or 0) for r in await late.list_events()]


def test_an_agents_events_are_read_in_the_order_of_their_numbers(postgres_url: str) -> None:
    assert asyncio.run(commit_out_of_order(postgres_url)) == [
        ("before", 1), ("committed first", 2), ("began first", 3),
    ]  # fmt: skip


def test_ablation_without_a_look_at_who_was_last_they_stand_the_other_way_round(
    postgres_url: str, tally
) -> None:
    with patched(functions, COUNTER_IS_OLDER="true"):
        found = asyncio.run(commit_out_of_order(postgres_url))
    assert [number for _, number in found] == [1, 3, 2]
    tally.add("ablations")


def test_two_processes_that_tell_of_the_same_agents_never_cross(postgres_url: str) -> None:
    """Each change touches one row of its own and events of two agents; positions tell the order."""
    agents = [f"{number:032x}" for number in range(6)]

    async def tells(store: postgres.PostgresStore, chance: random.Random, own: str) -> None:
        for number in range(60):
            told = [
                replace(numbered_event("said"), row={
                    **event("said").row, "agent": one, "sequence": event_sequence_of(one),
                })
                for one in chance.sample(agents, 2)
            ]  # fmt: skip
            put = lease(f"{own} {number}", 1.0)
            assert await store.commit(Change("", (), (put, *told))) is None

    async def scenario() -> None:
        async with open_store(postgres_url) as one, open_store(postgres_url) as other:
            chance = random.Random(7)
            await asyncio.gather(
                *(tells(store, chance, f"{place} {lane}")
                  for place, store in enumerate((one, other)) for lane in range(4))
            )  # fmt: skip
            rows = await one.list_events(limit=10_000)
            assert len(rows) == 2 * 4 * 60 * 2
            for agent in agents:
                numbers = [row.sequence for row in rows if row.agent == agent]
                assert numbers == list(range(1, len(numbers) + 1))

    asyncio.run(scenario())


def test_one_change_tells_other_processes_of_every_operation_that_it_concerns(
    postgres_url: str,
) -> None:
    async def main() -> list[WakeHint]:
        async with open_store(postgres_url) as one, open_store(postgres_url) as other:
            heard: list[WakeHint] = []
            other.listen(heard.append)
            wake_hints = combine_hints(
                WakeHint("new", unclaimed=True), WakeHint("closed", interrupt=True)
            )
            await one.commit(Change("", (), (event("first"),), wake_hint=wake_hints))
            await eventually(lambda: len(heard) == 2)
            return sorted(heard, key=lambda wake_hint: wake_hint.operation)

    expected = [WakeHint("closed", interrupt=True), WakeHint("new", unclaimed=True)]
    assert asyncio.run(main()) == expected


def test_what_is_over_goes_on_postgresql_too(postgres_url: str) -> None:
    async def main() -> object:
        settings = Settings(store=postgres_url)
        async with run_plane(settings, plans=late_reconcilers.PLANS, providers={}) as plane:
            return await late_reconcilers.on_any_store(plane)

    assert asyncio.run(main()) == late_reconcilers.RETENTION_RESULT


async def told_together(url: str, *, many: int) -> list[str]:
    """Commit three changes with so many events each in one turn; what is there then."""
    async with open_store(url, writers=1) as store:
        changes = [
            Change("", (), tuple(event(f"{change}.{n}") for n in range(many))) for change in "abc"
        ]
        assert await asyncio.gather(*map(store.commit, changes)) == [None] * 3
        rows = await store.list_events(limit=99)
        at = [row.position for row in rows]
        assert all(place % (1 << functions.ROW_NUMBER_BITS) < parts.APPENDS_MAX for place in at), (
            "beyond"
        )
        return [row.type for row in rows]


def test_a_batch_with_more_events_than_it_has_places_is_halved(postgres_url: str) -> None:
    with patched(parts, APPENDS_MAX=4):
        told = asyncio.run(told_together(postgres_url, many=3))
    assert told == [f"{change}.{n}" for change in "abc" for n in range(3)]


def test_ablation_a_transaction_would_take_the_places_of_the_next(postgres_url: str, tally) -> None:
    real = parts.Builder._append

    def append(self: parts.Builder, *args: Any) -> None:
        with patched(parts, APPENDS_MAX=-1):
            real(self, *args)

    with (
        patched(parts, APPENDS_MAX=4),
        patched(parts.Builder, _append=append),
        pytest.raises(AssertionError, match="beyond"),
    ):
        asyncio.run(told_together(postgres_url, many=3))
    tally.add("ablations")


def test_a_change_with_more_events_than_a_transaction_has_places_is_refused(
    postgres_url: str,
) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url) as store:
            with pytest.raises(LimitExceeded, match="at most 4 events: nothing was written"):
                await store.commit(Change("", (), (event(),) * 5))
            assert await store.commit(Change("", (), (event("later"),))) is None
            assert [row.type for row in await store.list_events()] == ["later"]

    with patched(parts, APPENDS_MAX=4):
        asyncio.run(scenario())
