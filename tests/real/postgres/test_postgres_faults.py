"""Servers that cannot take records for a while: a standby, a read-only one, a full disk, a doubt.

Goal: a sentence that says what to do, nothing lost, nothing twice, and work goes on by itself once
the server can. Method: servers of their own that are made so, and rows counted from outside.
"""

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tenure import Plan, provided
from tenure.adapters.store.postgres import server, writer_sessions
from tenure.app.safety.write_probe import WriteProbe, until_answered
from tenure.core.errors import StoreError, StoreFull
from tenure.core.events import EPOCH_SPAN
from tenure.core.records import JournalRecord, OperationRecord
from tenure.ports.store import Change, Generated, Next, Put, Value
from tenure.settings import Settings
from tenure.testing.contracts.store_rows import operation
from tenure.testing.proxy import PLAIN, Behaviour
from tenure.testing.servers import PostgresServer
from tenure.testing.shelf import Shelf
from tenure.wiring import run_plane
from tests.real.postgres.test_postgres_events import stranger
from tests.real.postgres.test_postgres_gate import refusal
from tests.real.postgres.test_postgres_lost_connections import raise_revision
from tests.real.support.disks import mount_disk
from tests.real.support.postgres import behind_a_proxy, eventually, open_store
from tests.real.support.tls import DAY, Authority, Pair, carry

pytestmark = pytest.mark.timeout(300)
SCHEMA = "?schema=tenure"


async def execute(server: PostgresServer, *statements: str) -> Any:
    """What the server says to the last of these."""
    connection = await asyncpg.connect(server.url)
    try:
        return [await connection.fetch(one) for one in statements][-1]
    finally:
        await connection.close()


def read_only(*, on: bool) -> str:
    return f"ALTER DATABASE postgres SET default_transaction_read_only = {'on' if on else 'off'}"


OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE application_name LIKE 'tenure %' AND pid <> pg_backend_pid()"
)
WRITES = "SET default_transaction_read_only = off"


def test_a_read_only_database_is_refused_and_borne(own_postgres: PostgresServer) -> None:
    async def scenario() -> None:
        url = own_postgres.url + SCHEMA
        async with open_store(url, writers=1, patience_seconds=0.5) as store:
            await store.commit(Change("", (), (operation("a"),)))
            await execute(own_postgres, read_only(on=True), OTHERS)
            with pytest.raises(StoreError, match="it is read-only: name the primary"):
                await store.commit(raise_revision(0))
            assert await store.find(OperationRecord, ("a",)) is not None  # it can still be read
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(_refused_as_read_only, url))
        await execute(own_postgres, WRITES, read_only(on=False))
        async with open_store(url, writers=1) as store:
            await execute(own_postgres, read_only(on=True), OTHERS)
            waiting = asyncio.ensure_future(store.commit(raise_revision(0)))
            await asyncio.sleep(0.3)
            assert not waiting.done()
            await execute(own_postgres, WRITES, read_only(on=False))
            assert await waiting is None  # by itself

    asyncio.run(scenario())


def test_a_plane_whose_database_has_become_read_only_is_not_ready(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    async def scenario() -> None:
        settings = Settings(store=own_postgres.url + SCHEMA, lease_ttl_seconds=600.0)
        shelf = Shelf(tmp_path, "identity", now=time.time)
        plan = Plan("make", stages=(provided("identity", "identity"),))
        async with run_plane(settings, plans=[plan], providers={"identity": shelf}) as plane:
            assert not await WriteProbe().problem(plane, seconds=5.0)
            await execute(own_postgres, read_only(on=True), OTHERS)
            probe = WriteProbe()
            assert await probe.problem(plane, seconds=1.0) == (
                "the store answers but accepts no writes: the PostgreSQL database is read-only"
                " (default_transaction_read_only)"
            )
            await until_answered(plane)  # it can still be read
            await execute(own_postgres, WRITES, read_only(on=False))
            assert not await probe.problem(plane, seconds=10.0)  # by itself

    asyncio.run(scenario())


def _refused_as_read_only(url: str) -> None:
    assert "default_transaction_read_only" in refusal(url)


def test_a_plane_whose_server_has_become_a_standby_says_so(
    own_postgres: PostgresServer, tmp_path: Path
) -> None:
    async def scenario() -> None:
        settings = Settings(store=own_postgres.url + SCHEMA, lease_ttl_seconds=600.0)
        shelf = Shelf(tmp_path, "identity", now=time.time)
        plan = Plan("make", stages=(provided("identity", "identity"),))
        async with run_plane(settings, plans=[plan], providers={"identity": shelf}) as plane:
            probe = WriteProbe()
            assert not await probe.problem(plane, seconds=5.0)
            own_postgres.halt()
            assert await probe.problem(plane, seconds=2.0) == (
                "the store does not answer: the PostgreSQL server cannot be reached, or it accepts"
                " no connection"
            )
            signal = own_postgres.folder / "data" / "standby.signal"
            signal.touch()
            own_postgres.start()
            assert await WriteProbe().problem(plane, seconds=2.0) == (
                "the store does not answer: the PostgreSQL server is a standby, which accepts no"
                " writes"
            )
            await execute(own_postgres, "SELECT pg_promote()")
            assert not await probe.problem(plane, seconds=20.0)  # by itself

    asyncio.run(scenario())


def test_a_full_disk_takes_no_new_work_and_is_used_again_when_there_is_room(
    own_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_sessions, "FULL_SECONDS", 5.0)

    async def scenario(folder: str) -> None:
        await execute(
            own_postgres,
            f"CREATE TABLESPACE small LOCATION '{folder}'",
            "ALTER DATABASE postgres SET default_tablespace = small",
        )
        async with open_store(own_postgres.url + SCHEMA, writers=1) as store:
            await store.commit(Change("", (), (operation("kept"),)))
            await execute(own_postgres, "CREATE TABLE public.filler (x text)")
            many = "SELECT repeat('x', 1000) FROM generate_series(1, 100000)"
            with pytest.raises(asyncpg.DiskFullError):
                await execute(own_postgres, f"INSERT INTO public.filler {many}")
            number, full = 0, ""
            while not full:  # until the room that the tables have already is used up
                number += 1
                large = operation(f"{number:04}", input="{}" + " " * 7_000)
                try:
                    await store.commit(Change("", (), (large,), is_new_work=True))
                except StoreFull as error:
                    full = str(error)
            assert "is full: this was not stored" in full
            assert await store.write_problem() == "the disk of the PostgreSQL server is full"
            with pytest.raises(StoreFull, match="Work accepted before is not affected"):
                await store.commit(Change("", (), (operation("new"),), is_new_work=True))
            assert await store.find(OperationRecord, ("kept",)) is not None
            assert await store.find(OperationRecord, (f"{number:04}",)) is None
            await execute(own_postgres, "DROP TABLE public.filler", "CHECKPOINT")
            again = Change("", (), (operation("again"),), is_new_work=True)

            async def is_taken() -> bool:
                with suppress(StoreFull):
                    return await store.commit(again) is None
                return False

            await eventually(is_taken)
            assert await store.count_rows(OperationRecord, {}) == number + 1

    with mount_disk("24m") as folder:
        owner = own_postgres.folder.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        try:
            asyncio.run(scenario(str(folder)))
        finally:
            own_postgres.halt()


def test_a_server_that_answers_before_it_has_flushed_is_made_to_wait(
    own_postgres: PostgresServer,
) -> None:
    async def scenario() -> str:
        await execute(own_postgres, "ALTER DATABASE postgres SET synchronous_commit = off")
        async with open_store(own_postgres.url + SCHEMA, writers=1) as store:
            session = await store._committer._writers._get_session(0)
            return str(await session.connection.fetchval("SHOW synchronous_commit"))

    assert asyncio.run(scenario()) == "on"


def test_a_server_that_would_lose_records_or_letters_is_refused(
    own_postgres: PostgresServer,
) -> None:
    asyncio.run(
        execute(own_postgres, "CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0")
    )
    assert "not in UTF-8" in refusal(own_postgres.url.replace("/postgres", "/bytes") + SCHEMA)
    own_postgres.halt()
    own_postgres.start("full_page_writes=off")
    assert "full_page_writes = off and would lose records" in refusal(own_postgres.url + SCHEMA)


@pytest.mark.parametrize(
    ("lasts", "is_trusted", "message"),
    [
        (100_000, True, ""),
        (100_000, False, "TLS certificate is not accepted"),
        (1, True, "TLS certificate is not accepted"),
    ],
    ids=["good", "a stranger's", "expired"],
)
def test_a_server_is_asked_over_tls_if_its_certificate_is_good(
    postgres_url: str, tmp_path: Path, *, lasts: int, is_trusted: bool, message: str
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "stranger")
    pair = authority.sign("localhost", lasts=lasts * DAY)
    file = authority.file if is_trusted else other.file
    parts = urlsplit(postgres_url)

    async def scenario() -> str:
        async with behind_tls(parts.port or 0, pair) as port:
            near = parts._replace(netloc=f"tenure@localhost:{port}").geturl()
            try:
                async with open_store(f"{near}&sslmode=verify-full&sslrootcert={file}") as store:
                    await store.commit(Change("", (), (operation("a"),)))
            except StoreError as error:
                return str(error)
            return ""

    found = asyncio.run(scenario())
    assert message in found
    assert bool(message) == bool(found)


@asynccontextmanager
async def behind_tls(there: int, pair: Pair) -> AsyncIterator[int]:
    """A port at which the server at that one speaks TLS, asked for as PostgreSQL's clients do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    visits: list[asyncio.Task[None]] = []

    async def answer_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back = None
        try:
            await reader.readexactly(8)
            writer.write(b"S")
            await writer.start_tls(context)
            answers, back = await asyncio.open_connection("127.0.0.1", there)
            async with asyncio.TaskGroup() as both:
                both.create_task(carry(reader, back))
                both.create_task(carry(answers, writer))
        except (OSError, EOFError):
            pass  # it does not trust us
        finally:
            for one in (writer, back):
                if one is not None:
                    one.transport.abort()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(asyncio.create_task(answer_client(reader, writer)))

    listening = await asyncio.start_server(begin, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)
        await asyncio.sleep(0)


ADDRESS = server.read_address("postgresql://ann:hush@db/plane")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (asyncpg.InvalidPasswordError("no"), "refuses the user or the password"),
        (asyncpg.InvalidCatalogNameError("no"), "createdb"),
        (asyncpg.DiskFullError("no"), "Free space there"),
        (asyncpg.ReadOnlySQLTransactionError("no"), "it is read-only"),
        (asyncpg.TooManyConnectionsError("no"), "raise max_connections"),
        (asyncpg.InsufficientPrivilegeError("no"), "grant CREATE and TEMP"),
        (asyncpg.LockNotAvailableError("no"), "see pg_stat_activity"),
        (TimeoutError(), "it does not answer"),
        (OSError("no route"), "cannot be reached (no route)"),
        (asyncpg.PostgresError("odd"), "it reports: odd"),
        (StoreError("as it is"), "as it is"),
    ],
)
def test_what_is_wrong_with_a_server_is_a_sentence_without_its_password(
    error: Exception, message: str
) -> None:
    words = str(server.translate_error(error, ADDRESS))
    assert message in words
    assert "hush" not in words


# --- in doubt -------------------------------------------------------------------------------------


def test_while_a_commit_is_in_doubt_no_error_is_an_answer(postgres_url: str) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(postgres_url, writers=1) as (store, proxy):
            await store.commit(Change("", (), (operation("a"),)))
            await store.commit(raise_revision(0))
            proxy.behaviour = Behaviour(cut_after_answered=0, refuses=True)
            waiting = asyncio.ensure_future(store.commit(raise_revision(1)))
            await asyncio.sleep(0.5)  # it is refused again and again, which says nothing of it
            assert not waiting.done()
            proxy.behaviour = PLAIN
            assert await waiting is None
            assert await store.count_rows(JournalRecord, {}) == 2

    asyncio.run(scenario())


def test_a_lost_session_that_has_not_committed_never_will(postgres_url: str) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(postgres_url, writers=1) as (store, proxy):
            await store.commit(Change("", (), (operation("a"),)))
            await store.commit(raise_revision(0))
            other = await stranger(postgres_url)

            async def waits() -> bool:
                return bool(await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"))

            async with other.transaction():
                await other.execute("SELECT 1 FROM operation FOR UPDATE")
                waiting = asyncio.ensure_future(store.commit(raise_revision(1)))
                await eventually(waits)
                proxy.cut()  # and the server has not noticed: it would commit when it gets the row
                await asyncio.sleep(0.3)
                assert not waiting.done()
            assert await waiting is None
            assert await store.count_rows(JournalRecord, {}) == 2
            await other.close()

    asyncio.run(scenario())


def test_an_epoch_whose_beginning_was_not_answered_is_begun_once(postgres_url: str) -> None:
    async def scenario() -> None:
        async with behind_a_proxy(postgres_url, writers=1) as (store, proxy):
            row: dict[str, Value | Generated] = {
                "tenant": "north",
                "agent": "a",
                "operation": "o",
                "type": "t",
                "at": 1.0,
                "body": "{}",
                "sequence": Next("event/a"),
            }
            await store.commit(Change("", (), (Put("outbox", (Next("outbox"),), row),)))
            await store.begin_epoch(2)
            proxy.behaviour = Behaviour(cut_after_answered=0)
            waiting = asyncio.ensure_future(store.begin_epoch(3))
            other = await stranger(postgres_url)

            async def is_begun() -> bool:
                value = await other.fetchval("SELECT value FROM counter WHERE name = 'event/a'")
                return bool(value == 3 * EPOCH_SPAN + 1)

            await eventually(is_begun)
            proxy.behaviour = PLAIN
            proxy.cut()
            await waiting
            assert await is_begun()
            await other.close()

    asyncio.run(scenario())
