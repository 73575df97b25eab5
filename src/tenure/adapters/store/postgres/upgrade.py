"""What an upgrade asks of a schema: what this release would make there, and what is open.

Nothing is changed, so a standby may answer, and any user who may read.
"""

from typing import NamedTuple

import asyncpg

from tenure.adapters.store.postgres import schema, server
from tenure.core.errors import StoreError
from tenure.sqlite.migrations import Migration, read_migrations

_READING = {"default_transaction_read_only": "on"}
_HOME = "SELECT name FROM plane WHERE one = 'home'"
_OPEN = (
    "SELECT operation.plan, plan.body, count(*) FROM operation"
    " LEFT JOIN plan ON plan.digest = operation.plan"
    " WHERE operation.ended_at IS NULL GROUP BY operation.plan, plan.body"
)


class StoreReport(NamedTuple):
    """What is there."""

    home: str
    """The name of the home that it belongs to; empty: it knows of none."""
    lacks: list[Migration]
    followed: list[tuple[str, str | None, int]]
    """Each plan that open operations follow: its digest, its body if it is kept, how many do."""


async def inspect_upgrade(url: str) -> StoreReport:
    """Read it; a StoreError says what stands in the way."""
    address = server.read_address(url)
    migrations = read_migrations(schema.HERE / "migrations")
    try:
        connection = await server.connect(address, "tenure upgrade", _READING, standby=True)
        try:
            number = await schema.reached(connection, address, migrations)
            if number is None:
                raise StoreError(f"{address.shown()} holds no plane. Nothing was touched.")
            home = await connection.fetchval(_HOME)
            rows = await connection.fetch(_OPEN)
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.GONE, ValueError) as error:
        raise server.translate_error(error, address) from None
    followed = [(str(digest), body, int(count)) for digest, body, count in rows]
    return StoreReport(home or "", migrations[number:], followed)
