"""A failover to a standby: nothing is lost with synchronous replication, else that is noticed.

Goal: promise 1 on a server that is replaced by its standby. Method: a primary and a standby of the
test's own; the standby stops to receive, the primary is killed, the standby is promoted. Rows are
counted on the server that is left.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenure.adapters.store.postgres import background_connection, server
from tenure.adapters.store.postgres.history import History
from tenure.app.safety import epochs, watermark
from tenure.app.tenancy import tokens
from tenure.core.errors import StoreRewound
from tenure.core.records import JournalRecord, OperationRecord, PlanRecord
from tenure.core.roles import Caller, Role
from tenure.ports.store import Change, Put, Queue
from tenure.reconcilers import epoch as epoch_reconciler
from tenure.settings import Settings
from tenure.testing.contracts.store_rows import operation
from tenure.testing.patches import patched
from tenure.testing.servers import PostgresServer
from tenure.wiring import run_agent_plane
from tests.real.postgres.test_postgres_gate import refusal
from tests.real.postgres.test_postgres_lost_connections import raise_revision
from tests.real.support.postgres import eventually, open_store
from tests.real.support.standby import (
    SYNCHRONOUS,
    ask,
    fail_over,
    follows,
    receive_again,
    standby_of,
    stop_receiving,
    url_of_both,
)

pytestmark = pytest.mark.timeout(300)
ADMIN = Caller(tokens.PLANE_TENANT, "admin", Role.ADMIN)
RECORDS = ("one", "two")


async def count(postgres: PostgresServer, what: str) -> int:
    """How many rows there are of this, asked by somebody else."""
    return int((await ask(postgres, f"SELECT count(*) FROM tenure.{what}"))[0][0])


def test_a_standby_is_refused_and_a_failover_to_it_is_followed(
    own_postgres: PostgresServer,
) -> None:
    async def scenario(standby: PostgresServer) -> None:
        both = url_of_both(own_postgres, standby)
        async with open_store(both, writers=2) as store:  # the primary is found
            await store.commit(Change("", (), (operation("a"),)))
            assert await store.commit(raise_revision(0)) is None
            await eventually(lambda: follows(own_postgres, standby))
            assert await count(standby, "journal") == 1
            reason = await asyncio.to_thread(refusal, standby.url + "?schema=tenure")
            assert "The server is a standby" in reason
            assert "target_session_attrs=read-write" in reason
            own_postgres.kill()  # its backends may outlive it, and answer
            waiting = asyncio.ensure_future(store.commit(raise_revision(1)))
            await ask(standby, "SELECT pg_promote()")
            assert await waiting is None
            assert await store.count_rows(JournalRecord, {}) == 2

    with standby_of(own_postgres, SYNCHRONOUS) as standby:
        asyncio.run(scenario(standby))


def test_a_commit_that_was_not_answered_is_acknowledged_when_the_standby_has_it(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lost session is ended, and its commit is visible on the primary: that is not enough."""
    monkeypatch.setattr(server, "STATEMENT_SECONDS", 1.0)
    url, claimed = own_postgres.url + "?schema=tenure", "operation WHERE worker = 'w'"

    async def is_claimed() -> bool:
        return await count(own_postgres, claimed) == 1

    async def scenario(standby: PostgresServer) -> None:
        async with open_store(url) as store:
            await store.commit(Change("", (), (operation("a"),)))
        await eventually(lambda: follows(own_postgres, standby))
        await stop_receiving(standby)
        async with open_store(url, writers=1) as store:
            waiting = asyncio.ensure_future(store.claim(Queue.OPERATIONS, "w", limit=1))
            await eventually(is_claimed)
            await asyncio.sleep(3.0)
            assert not waiting.done()
            assert await count(standby, claimed) == 0
            await receive_again(own_postgres, standby)
            assert [one.id for one in await waiting] == ["a"]
            await eventually(lambda: follows(own_postgres, standby))
            assert await count(standby, claimed) == 1

    with standby_of(own_postgres, SYNCHRONOUS) as standby:
        asyncio.run(scenario(standby))


def test_while_the_standby_is_away_sessions_do_not_pile_up(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a session makes for itself and what is tidied up need not be on the standby."""
    monkeypatch.setattr(server, "STATEMENT_SECONDS", 1.0)
    monkeypatch.setattr(background_connection, "CHECK_SECONDS", 0.2)
    ours = "SELECT count(*) FROM pg_stat_activity WHERE starts_with(application_name, 'tenure ')"

    async def scenario(standby: PostgresServer) -> None:
        async with open_store(own_postgres.url + "?schema=tenure", writers=1) as store:
            await eventually(lambda: follows(own_postgres, standby))
            await stop_receiving(standby)
            waiting = asyncio.ensure_future(store.commit(Change("", (), (operation("a"),))))
            await asyncio.sleep(5.0)
            assert (await ask(own_postgres, ours))[0][0] <= 3  # the lost one, its successor, aside
            assert not waiting.done()
            await receive_again(own_postgres, standby)
            assert await waiting is None
        assert await count(own_postgres, "operation") == 1

    with standby_of(own_postgres, SYNCHRONOUS) as standby:
        asyncio.run(scenario(standby))


# --- a server that has gone backwards -------------------------------------------------------------


@contextmanager
def rewind_check_off() -> Iterator[None]:
    """The two safeguards switched off: no server and no store is compared with what it had."""

    async def check(_: History, __: object) -> None:
        """Every server will do."""

    async def find_missing(_: object) -> str:
        return ""

    with patched(History, check=check), patched(watermark, find_missing=find_missing):
        yield


async def lose_a_commit(primary: PostgresServer, standby: PostgresServer) -> tuple[str, int]:
    """A commit is acknowledged and lost: how the next one ends, and how many records are kept."""
    async with open_store(url_of_both(primary, standby), writers=2) as store:
        await store.commit(Change("", (), (operation("a"),)))
        assert await store.commit(raise_revision(0)) is None
        await eventually(lambda: follows(primary, standby))
        await stop_receiving(standby)
        assert await store.commit(Change("o/1/1/lost", (), (operation("lost"),))) is None
        await fail_over(primary, standby)
        try:
            answer = str(await store.commit(raise_revision(1)))
        except StoreRewound as error:
            answer = str(error)
            with pytest.raises(StoreRewound):
                await store.find(OperationRecord, ("a",))
            with pytest.raises(StoreRewound):
                await store.commit(raise_revision(1))
    assert await count(standby, "operation WHERE id = 'lost'") == 0
    return answer, await count(standby, "journal")


def test_a_server_that_lost_acknowledged_commits_is_written_no_more(
    own_postgres: PostgresServer,
) -> None:
    with standby_of(own_postgres) as standby:
        answer, records = asyncio.run(lose_a_commit(own_postgres, standby))
    assert "has gone backwards: it lacks 1 of the last commits" in answer
    assert "changes that are lost: o/1/1/lost." in answer
    assert records == 1


def test_without_the_check_acknowledged_commits_are_lost_in_silence(
    own_postgres: PostgresServer,
) -> None:
    with standby_of(own_postgres) as standby, rewind_check_off():
        assert asyncio.run(lose_a_commit(own_postgres, standby)) == ("None", 2)


def record(name: str) -> Change:
    """A row that nobody reads; the audit log has no line of it."""
    return Change(
        f"o/1/1/{name}", (), (Put("plan", (name,), {"name": name, "version": 1, "body": "{}"}),)
    )


def plane_settings(home: Path, primary: PostgresServer, standby: PostgresServer) -> Settings:
    return Settings(
        home=str(home), store=url_of_both(primary, standby), sandbox="off", lease_ttl_seconds=3.0
    )


async def lose_a_record(
    home: Path, primary: PostgresServer, standby: PostgresServer, *, runs: bool
) -> str:
    """A record is acknowledged that the promoted standby lacks: the plane's error, if it `runs` on.

    A plane that was stopped before the failover knows only what it wrote to its home.
    """
    stopped = ""
    try:
        async with run_agent_plane(plane_settings(home, primary, standby)) as plane:
            await plane.store.commit(record("one"))
            await epochs.record_audit_head(plane)
            await eventually(lambda: follows(primary, standby))
            await stop_receiving(standby)
            await plane.store.commit(record("two"))
            if runs:
                await fail_over(primary, standby)
                await asyncio.sleep(8.0)
    except StoreRewound as error:
        stopped = str(error)
    if not runs:
        await fail_over(primary, standby)
    return stopped


async def start_again(
    home: Path, primary: PostgresServer, standby: PostgresServer
) -> tuple[int, str, list[str]]:
    """The epoch, why it is paused, and which records there are; then an operator confirms."""
    async with run_agent_plane(plane_settings(home, primary, standby)) as plane:
        records = [name for name in RECORDS if await plane.store.find(PlanRecord, (name,))]
        found = plane.pause.epoch, plane.pause.why, records
        assert bool(plane.engine.worker) == (not plane.pause.why), "a paused plane moves nothing"
        if plane.pause.why:
            await epochs.confirm(plane, ADMIN)
            await eventually(lambda: bool(plane.engine.worker))
        assert plane.pause.why == ""
    return found


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_plane_whose_server_lost_acknowledged_work_is_paused_until_somebody_confirms(
    own_postgres: PostgresServer, tmp_path: Path, *, runs: bool
) -> None:
    with standby_of(own_postgres) as standby:
        stopped = asyncio.run(lose_a_record(tmp_path, own_postgres, standby, runs=runs))
        assert ("has gone backwards" in stopped) == runs
        epoch, why, records = asyncio.run(start_again(tmp_path, own_postgres, standby))
        assert (epoch, records) == (2, ["one"])
        assert ("has gone backwards" if runs else "the store lacks the watermark") in why
        asyncio.run(start_again(tmp_path, own_postgres, standby))
        rows = asyncio.run(ask(standby, "SELECT action FROM tenure.audit"))
        lines = [str(row[0]) for row in rows]
    assert sum("plane.hold" in line for line in lines) == 1
    assert sum("plane.confirm" in line for line in lines) == 1


@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_without_the_checks_a_plane_goes_on_as_if_nothing_were_lost(
    own_postgres: PostgresServer, tmp_path: Path, *, runs: bool
) -> None:
    with standby_of(own_postgres) as standby, rewind_check_off():
        assert asyncio.run(lose_a_record(tmp_path, own_postgres, standby, runs=runs)) == ""
        assert asyncio.run(start_again(tmp_path, own_postgres, standby)) == (1, "", ["one"])


def test_a_failover_that_lost_nothing_goes_on_by_itself(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    async def main(standby: PostgresServer) -> None:
        async with run_agent_plane(plane_settings(tmp_path, own_postgres, standby)) as plane:
            await plane.store.commit(record("one"))
            await fail_over(own_postgres, standby)
            await plane.store.commit(record("two"))
            await epoch_reconciler.tick(plane)
            assert plane.pause.why == ""

    with standby_of(own_postgres, SYNCHRONOUS) as standby:
        asyncio.run(main(standby))
        again = asyncio.run(start_again(tmp_path, own_postgres, standby))
    assert again == (1, "", ["one", "two"])
