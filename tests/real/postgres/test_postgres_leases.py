"""A lease lives and ends by the server's clock, whatever a worker takes the time to be.

Goal: clock skew between workers (a clock that jumped, a machine that was suspended). Method: one
store knows the time, another is an hour off; neither takes what lives, both take what is dead.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tenure.adapters.clock.system import SystemEntropy
from tenure.adapters.store import postgres
from tenure.adapters.store.postgres.clock import ServerClock
from tenure.adapters.store.postgres.functions import Functions
from tenure.app.leader import Leader
from tenure.core.records import LeaseRecord
from tenure.ports.store import Change, Is, Queue, Set
from tenure.reconcilers import leases
from tenure.testing.contracts.store_rows import lease, operation
from tests.real.support.postgres import open_store

pytestmark = pytest.mark.timeout(300)
HOUR = 3_600.0


@asynccontextmanager
async def off_by(url: str, seconds: float) -> AsyncIterator[postgres.PostgresStore]:
    """A store that takes it to be so much later than it is."""

    class Wrong(ServerClock):
        def now(self) -> float:
            return super().now() + seconds

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(postgres, "ServerClock", Wrong)
        async with open_store(url) as store:
            yield store


def plane(store: postgres.PostgresStore) -> Any:
    """As much of a plane as a lease needs."""
    return SimpleNamespace(store=store, entropy=SystemEntropy())


async def claim(store: postgres.PostgresStore) -> list[str]:
    return [one.id for one in await store.claim(Queue.OPERATIONS, "me", limit=9)]


async def claim_after_lease(
    url: str, *, writer: float = 0.0, claimer: float = 0.0, seconds_left: float
) -> list[str]:
    """What one store takes of a worker whose lease another has put, and renewed, for so long."""
    async with off_by(url, writer) as theirs, off_by(url, claimer) as ours:
        held = (operation("a", worker="them"), lease("them", theirs.now() + 60))
        await theirs.commit(Change("", (), held))
        key = ("worker/them",)
        renewed = Set("lease", key, {"until": theirs.now() + seconds_left})
        guard = Is("lease", key, {"token": 1})
        assert await theirs.commit(Change("", (guard,), (renewed,))) is None
        return await claim(ours)


@pytest.mark.parametrize(("seconds_left", "found"), [(60.0, []), (-0.001, ["a"])])
@pytest.mark.parametrize("skew", [-HOUR, HOUR])
@pytest.mark.parametrize("who", ["writer", "claimer"])
def test_a_wrong_clock_takes_no_live_lease_and_keeps_no_dead_one(
    postgres_url: str, who: str, skew: float, seconds_left: float, found: list[str]
) -> None:
    skewed: dict[str, Any] = {who: skew}
    assert (
        asyncio.run(claim_after_lease(postgres_url, seconds_left=seconds_left, **skewed)) == found
    )


def test_ablation_by_the_processes_own_idea_of_time_a_live_lease_is_taken(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, tally
) -> None:
    init = Functions.__init__

    def not_judging(self: Functions, types: Any, **_rest: object) -> None:
        init(self, types, uses_server_time=False)

    monkeypatch.setattr(Functions, "__init__", not_judging)
    assert asyncio.run(claim_after_lease(postgres_url, writer=-HOUR, seconds_left=60.0)) == ["a"]
    tally.add("ablations")


def test_who_leads_is_judged_by_the_servers_clock_too(postgres_url: str) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url) as right, off_by(postgres_url, HOUR) as ahead:
            ours, theirs = (Leader(plane(one), "x", ttl_seconds=300) for one in (right, ahead))
            assert await ours.renew()
            assert not await theirs.renew()
            assert ours.leads
            await ours.resign()
            assert await theirs.renew()
            row = await right.find(LeaseRecord, ("leader/x",))
            assert row is not None
            assert isinstance(row.until, float)
            assert 0 < row.until - right.now() < 600  # not for an hour more

    asyncio.run(scenario())


def test_a_lease_is_dropped_when_it_has_lapsed_by_the_servers_clock(postgres_url: str) -> None:
    async def scenario() -> None:
        async with open_store(postgres_url) as right, off_by(postgres_url, HOUR) as ahead:
            await right.commit(Change("", (), (lease("live", right.now() + 60),)))
            await right.commit(
                Change("", (), (lease("dead", right.now() - leases.RETENTION_SECONDS),))
            )
            told: list[str] = []

            async def report(_: object, name: str, *__: object, **___: object) -> None:
                told.append(name)

            async def resolve_unseen() -> None:
                told.append("that is all")

            this_pass: Any = SimpleNamespace(
                read_only=False, report=report, resolve_unseen=resolve_unseen
            )
            found = await leases.tick(plane(ahead), this_pass=this_pass)
            assert (found.seen, found.fixed) == (2, 1)
            assert told == ["worker/dead", "that is all"]
            assert await right.find(LeaseRecord, ("worker/live",)) is not None
            assert await right.find(LeaseRecord, ("worker/dead",)) is None

    asyncio.run(scenario())
