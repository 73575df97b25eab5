"""Makes the tables: numbered files, forward only, under a lock, so that many may start at once.

Each run is one transaction: a process that dies in it, or a file that fails, leaves nothing.
"""

from pathlib import Path

import asyncpg

from tenure.adapters.store.postgres.functions import Types
from tenure.adapters.store.postgres.server import Address
from tenure.core.errors import StoreForeign, StoreNewer
from tenure.storage.migrations import Migration

HERE = Path(__file__).parent
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tenure migrations'), hashtext($1))"
_MARK = "tenure_migration"
_MARKED = f"CREATE TABLE {_MARK} (number BIGINT PRIMARY KEY, name TEXT NOT NULL)"

_FROM_ELSEWHERE = (
    "(SELECT max(written_by) FROM outbox) >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
)


async def migrate(
    connection: asyncpg.Connection, address: Address, migrations: list[Migration]
) -> list[str]:
    """Apply what the schema lacks; the names applied.  Refuses what is newer or not ours."""
    schema = address.schema
    if await _number(connection, schema) == len(migrations):
        return []
    async with connection.transaction():
        await connection.execute(_LOCK, schema)
        number = await _number(connection, schema)
        if number is None:
            await _refuse_foreign(connection, address)
            await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            await connection.execute(_MARKED)
            number = 0
        if number > len(migrations):
            raise StoreNewer(
                f"{address.shown()} was written by a newer Tenure (schema {number}, this one knows"
                f" {len(migrations)}): start that one. Nothing was touched."
            )
        for migration in migrations[number:]:
            await connection.execute(migration.sql)
            await connection.execute(
                f"INSERT INTO {_MARK} (number, name) VALUES ($1, $2)",
                migration.number,
                migration.name,
            )
        return [migration.name for migration in migrations[number:]]


async def _number(connection: asyncpg.Connection, schema: str) -> int | None:
    """The last migration applied; None where there was none."""
    if await connection.fetchval("SELECT to_regclass($1)", f'"{schema}".{_MARK}') is None:
        return None
    found: int = await connection.fetchval(f"SELECT coalesce(max(number), 0) FROM {_MARK}")
    return found


async def _refuse_foreign(connection: asyncpg.Connection, address: Address) -> None:
    other = await connection.fetchval(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace($1) LIMIT 1",
        f'"{address.schema}"',
    )
    if other is not None:
        raise StoreForeign(
            f"{address.shown()} holds another program's tables ({other}): name another schema,"
            " like postgresql://…?schema=tenure2. Nothing was touched."
        )


async def read_types(connection: asyncpg.Connection, schema: str) -> Types:
    """The type of every column, as the server knows it."""
    rows = await connection.fetch(
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = $1",
        schema,
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def shift_restored(connection: asyncpg.Connection) -> None:
    """Events that were restored here carry another server's transaction numbers: make them past.

    Their order stays; without this they would wait until this server has counted as far.
    """
    if not await connection.fetchval(f"SELECT {_FROM_ELSEWHERE}"):
        return
    async with connection.transaction():
        await connection.execute("LOCK TABLE outbox IN SHARE ROW EXCLUSIVE MODE")
        await connection.execute(
            "UPDATE outbox SET written_by = written_by - (SELECT max(written_by) + 1 FROM outbox)"
            f" WHERE {_FROM_ELSEWHERE}"
        )
