"""A PostgreSQL with a standby that follows it, and a failover to that standby."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import asyncpg

from tenure.testing.servers import PostgresServer

SYNCHRONOUS = "synchronous_standby_names=*"
"""The setting of a primary that answers a commit only when its standby has it."""


async def ask(server: PostgresServer, *statements: str) -> Any:
    """The rows that the server answers to the last of these."""
    connection = await asyncpg.connect(server.url)
    try:
        return [await connection.fetch(one) for one in statements][-1]
    finally:
        await connection.close()


@contextmanager
def standby_of(primary: PostgresServer, *settings: str) -> Iterator[PostgresServer]:
    """A standby with a copy of the primary's files; the primary is started again with these."""
    standby = PostgresServer()
    try:
        primary.halt()
        data = standby.folder / "data"
        shutil.rmtree(data)
        shutil.copytree(primary.folder / "data", data)
        (data / "standby.signal").touch()
        (data / "postmaster.pid").unlink(missing_ok=True)
        owner = primary.folder.stat()
        for path in (data, *data.rglob("*")):
            os.chown(path, owner.st_uid, owner.st_gid)
        with (data / "postgresql.auto.conf").open("a", encoding="utf-8") as file:
            file.write(f"primary_conninfo = '{_conninfo(primary)}'\n")
        primary.start(*settings)
        standby.start()
        yield standby
    finally:
        standby.stop()


def _conninfo(primary: PostgresServer) -> str:
    return f"host=127.0.0.1 port={primary.port} user=tenure"


def url_of_both(primary: PostgresServer, standby: PostgresServer) -> str:
    """An address by which the one that is the primary is found."""
    hosts = f"127.0.0.1:{standby.port},127.0.0.1:{primary.port}"
    return f"postgresql://tenure@{hosts}/postgres?target_session_attrs=read-write&schema=tenure"


async def follows(primary: PostgresServer, standby: PostgresServer) -> bool:
    """Whether the standby has replayed all that the primary has committed."""
    ((end,),) = await ask(primary, "SELECT pg_current_wal_flush_lsn()::text")
    behind = f"SELECT coalesce(pg_last_wal_replay_lsn() >= '{end}'::pg_lsn, false)"
    return bool((await ask(standby, behind))[0][0])


async def stop_receiving(standby: PostgresServer) -> None:
    """From now on the standby gets nothing of what the primary commits; returns when that is so."""
    await ask(standby, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
    while await ask(  # noqa: ASYNC110 (only the server knows)
        standby, "SELECT pid FROM pg_stat_wal_receiver"
    ):
        await asyncio.sleep(0.02)


async def receive_again(primary: PostgresServer, standby: PostgresServer) -> None:
    """The standby follows the primary again, soon."""
    conninfo = f"ALTER SYSTEM SET primary_conninfo = '{_conninfo(primary)}'"
    await ask(standby, conninfo, "SELECT pg_reload_conf()")


async def fail_over(primary: PostgresServer, standby: PostgresServer) -> None:
    """Kill the primary and all its processes, then promote the standby.

    A process of the primary that outlives the first one could still answer a commit.  The first
    one is stopped meanwhile: it starts no other, and the numbers of the dead are not used again.
    """
    pids = [pid for (pid,) in await ask(primary, "SELECT pid FROM pg_stat_activity")]
    first = (primary.folder / "data" / "postmaster.pid").read_text("utf-8").split()[0]
    os.kill(int(first), signal.SIGSTOP)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    primary.kill()
    await ask(standby, "SELECT pg_promote()")
