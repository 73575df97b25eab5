"""How far events can be read: never beyond a transaction of a plane that is still open.

A position is the number of its transaction, so an open one may still bring events before those
that are there.  Only sessions of Tenure bring any, and every release names its sessions so; whoever
else has a transaction open on this server (in another database, idle, prepared and forgotten) is a
stranger and holds nothing back.  Who cannot be told from one of ours counts as ours.

Strangers are looked for first, and rows are read as they stand after that: of one who ends
meanwhile it is known what he was, and who begins meanwhile has a number beyond all that was there.
So the horizon never goes back, and nobody waits for a stranger.  Both are asked on one connection:
another server would give the same numbers to others.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg

from tenure.adapters.store.postgres.functions import PLACE_BITS

OURS = "tenure "
"""How the name of every session of ours begins, as `pg_stat_activity` tells it to everybody."""
STRANGERS = f"""
SELECT coalesce(array_agg(number), '{{}}') FROM (
    SELECT backend_xid FROM pg_stat_activity
    WHERE datid <> (SELECT oid FROM pg_database WHERE datname = current_database())
       OR NOT starts_with(application_name, '{OURS}')
    UNION ALL SELECT transaction FROM pg_prepared_xacts
) AS open (number) WHERE number IS NOT NULL"""
"""Open transactions that never bring an event; nobody of ours prepares one."""
BEYOND = f"""
SELECT (least(
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
    pg_current_xact_id_if_assigned()::text::bigint,
    (SELECT min(number::text::bigint) FROM pg_snapshot_xip(pg_current_snapshot()) AS number
     WHERE number::xid <> ALL ($1::xid[]))
) + moved) << {PLACE_BITS} FROM horizon"""
"""The first position that cannot be read yet; to who writes, its own transaction is open too."""
LIST = f"""
SELECT position, tenant, agent, operation, type, at, body, sequence FROM outbox
WHERE position > $2 AND position < ({BEYOND}) ORDER BY position LIMIT $3"""
"""Outbox rows after a position, at most so many, in an order that later commits only add to."""
NEWEST = f"SELECT coalesce(max(position), 0) FROM outbox WHERE position < ({BEYOND})"
"""The last position that can be read."""


async def ask(connection: asyncpg.Connection, sql: str, *asked: Any) -> Sequence[asyncpg.Record]:
    """Every row that answers this; strangers are `$1`."""
    strangers = await connection.fetchval(STRANGERS)
    return await connection.fetch(sql, strangers, *asked)
