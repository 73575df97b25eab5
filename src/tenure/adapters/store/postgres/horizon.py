"""The horizon: events can be read up to the oldest open transaction of a plane.

A position contains its transaction's id, so an open transaction may still add events before visible
ones.  Only sessions of Tenure add events; every release names its sessions with a prefix.  Other
open transactions on the server (of another database, idle, prepared and forgotten) are foreign and
do not limit the horizon.  A transaction that cannot be identified counts as one of Tenure's.

Foreign transactions are listed first, and rows are read after that.  A transaction that ends in
between was classified while it was open, and one that starts in between has a larger id.  So the
horizon never goes back, and readers never wait for foreign transactions.  Both queries use one
connection, because another server has other transaction ids.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg

from tenure.adapters.store.postgres.functions import ROW_NUMBER_BITS

SESSION_PREFIX = "tenure "
"""Prefix of the names of Tenure's sessions; every user sees it in `pg_stat_activity`."""
FOREIGN_TRANSACTIONS = f"""
SELECT coalesce(array_agg(number), '{{}}') FROM (
    SELECT backend_xid FROM pg_stat_activity
    WHERE datid <> (SELECT oid FROM pg_database WHERE datname = current_database())
       OR NOT starts_with(application_name, '{SESSION_PREFIX}')
    UNION ALL SELECT transaction FROM pg_prepared_xacts
) AS open (number) WHERE number IS NOT NULL"""
"""Open transactions that add no event; Tenure never prepares a transaction."""
FIRST_UNREADABLE = f"""
SELECT (least(
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
    pg_current_xact_id_if_assigned()::text::bigint,
    (SELECT min(number::text::bigint) FROM pg_snapshot_xip(pg_current_snapshot()) AS number
     WHERE number::xid <> ALL ($1::xid[]))
) + moved) << {ROW_NUMBER_BITS} FROM horizon"""
"""The first position that cannot be read yet; a writer's own transaction counts as open."""
LIST_EVENTS = f"""
SELECT position, tenant, agent, operation, type, at, body, sequence FROM outbox
WHERE position > $2 AND position < ({FIRST_UNREADABLE}) ORDER BY position LIMIT $3"""
"""Outbox rows after a position, in an order to which later commits only append."""
NEWEST_POSITION = (
    f"SELECT coalesce(max(position), 0) FROM outbox WHERE position < ({FIRST_UNREADABLE})"
)
"""The last position that can be read."""


async def fetch_readable(
    connection: asyncpg.Connection, sql: str, *parameters: Any
) -> Sequence[asyncpg.Record]:
    """Run a query whose `$1` are the foreign transactions; returns its rows."""
    foreign = await connection.fetchval(FOREIGN_TRANSACTIONS)
    return await connection.fetch(sql, foreign, *parameters)
