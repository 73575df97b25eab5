"""Inspects a schema before an upgrade: missing migrations, and plans of open operations.

Nothing is changed, so a standby may answer, and any user who may read.
"""

from typing import NamedTuple

import asyncpg

from tenure.adapters.store.postgres import schema, server
from tenure.core.errors import StoreError
from tenure.sqlite.migrations import Migration, read_migrations

_READ_ONLY = {"default_transaction_read_only": "on"}
_HOME = "SELECT name FROM plane WHERE one = 'home'"
_OPEN = (
    "SELECT operation.plan, plan.body, count(*) FROM operation"
    " LEFT JOIN plan ON plan.digest = operation.plan"
    " WHERE operation.ended_at IS NULL GROUP BY operation.plan, plan.body"
)


class StoreReport(NamedTuple):
    """What an upgrade has to know about the store."""

    home: str
    """The name of the home that the store belongs to; empty: none is recorded."""
    missing: list[Migration]
    open_plans: list[tuple[str, str | None, int]]
    """The plans of open operations: digest, body if it is stored, number of operations."""


async def inspect_upgrade(url: str) -> StoreReport:
    """Read the report; a StoreError says why it cannot be read."""
    address = server.read_address(url)
    migrations = read_migrations(schema.FOLDER / "migrations")
    try:
        connection = await server.connect(address, "tenure upgrade", _READ_ONLY, standby=True)
        try:
            number = await schema.find_last_migration(connection, address, migrations)
            if number is None:
                raise StoreError(f"{address.display()} has no plane. Nothing was changed.")
            home = await connection.fetchval(_HOME)
            rows = await connection.fetch(_OPEN)
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.LOST_CONNECTION_ERRORS, ValueError) as error:
        raise server.translate_error(error, address) from None
    open_plans = [(str(digest), body, int(count)) for digest, body, count in rows]
    return StoreReport(home or "", migrations[number:], open_plans)
