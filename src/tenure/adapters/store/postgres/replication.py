"""Finds out from the primary whether a failover to a standby would lose acknowledged commits.

A commit is on a standby before it is acknowledged only if `synchronous_standby_names` names that
standby; the store's sessions use `synchronous_commit = on` at least, whatever the server's default.
"""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from tenure.adapters.store.postgres import server

SYNCHRONOUS_STATES = ("sync", "quorum")
"""Values of `sync_state` of a standby for which commits wait, alone or as one of a quorum."""
_STANDBYS = (
    "SELECT coalesce(nullif(application_name, ''), 'pid ' || pid), sync_state"
    " FROM pg_stat_replication WHERE state IS DISTINCT FROM 'backup' ORDER BY 1"
)


class Replication(NamedTuple):
    """The state of replication, and advice if something should be changed."""

    keeps_commits: bool
    """Whether a failover to any connected standby loses no acknowledged commit."""
    found: str
    advice: str = ""


class Standby(NamedTuple):
    """A standby that is connected to the primary."""

    name: str
    sync_state: str | None
    """None: the user may not see it."""


async def inspect_replication(url: str) -> Replication:
    """Inspect the server that the URL names; a StoreError says why that is not possible."""
    address = server.read_address(url)
    try:
        connection = await server.connect(address, "tenure doctor")
        try:
            names = str(await connection.fetchval("SHOW synchronous_standby_names"))
            standbys = [Standby(*row) for row in await connection.fetch(_STANDBYS)]
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.LOST_CONNECTION_ERRORS, ValueError) as error:
        raise server.translate_error(error, address) from None
    return assess(names.strip(), standbys)


def assess(names: str, standbys: Sequence[Standby]) -> Replication:
    """Decide from `synchronous_standby_names` and the connected standbys."""
    listed = ", ".join(one.name for one in standbys)
    if not names:
        if not standbys:
            return Replication(keeps_commits=True, found="no standby is connected")
        return Replication(
            keeps_commits=False,
            found=f"asynchronous: {listed}; a failover can lose acknowledged work",
            advice="set synchronous_standby_names on the server, as 'ANY 1 (a, b)', and reload it",
        )
    if not standbys:
        return Replication(
            keeps_commits=False,
            found=f"no standby is connected, and commits wait for {names!r}",
            advice="start a standby that it names: nothing is accepted until then",
        )
    if all(one.sync_state is None for one in standbys):
        return Replication(
            keeps_commits=True,
            found=f"synchronous_standby_names is {names!r}; connected: {listed}",
            advice="GRANT pg_read_all_stats to the store's user, to see which are synchronous",
        )
    safe = ", ".join(one.name for one in standbys if one.sync_state in SYNCHRONOUS_STATES)
    others = ", ".join(one.name for one in standbys if one.sync_state not in SYNCHRONOUS_STATES)
    if not safe:
        return Replication(
            keeps_commits=False,
            found=f"none of the standbys ({others}) is named by {names!r}: commits wait",
            advice="start a standby that it names: nothing is accepted until then",
        )
    if others:
        return Replication(
            keeps_commits=False,
            found=f"synchronous: {safe}; asynchronous: {others}",
            advice=f"never fail over to {others}: it can lack acknowledged work",
        )
    return Replication(keeps_commits=True, found=f"synchronous: {safe}")
