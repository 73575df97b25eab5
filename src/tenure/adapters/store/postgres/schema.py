"""Makes the tables: numbered files, forward only, under a lock, so that many may start at once.

Each run is one transaction: a process that dies in it, or a file that fails, leaves nothing.
"""

from pathlib import Path

import asyncpg

from tenure.adapters.store.postgres.functions import PLACE_BITS, Types
from tenure.adapters.store.postgres.server import Address
from tenure.core.errors import StoreForeign, StoreNewer
from tenure.sqlite.migrations import Migration

HERE = Path(__file__).parent
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tenure migrations'), hashtext($1))"
_MARK = "tenure_migration"
_MARKED = (
    f"CREATE TABLE {_MARK}"
    " (number BIGINT PRIMARY KEY, name TEXT NOT NULL, only_adds BOOLEAN NOT NULL)"
)
_THERE = (
    "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE nspname = $1 AND relname = $2"
)
_BEYOND = f"SELECT EXISTS (SELECT FROM {_MARK} WHERE number > $1 AND NOT only_adds)"


async def migrate(
    connection: asyncpg.Connection, address: Address, migrations: list[Migration]
) -> list[str]:
    """Apply what the schema lacks; the names applied.  Refuses what is newer or not ours.

    A newer schema that only grew is open to this release: see `tenure.sqlite.migrations`.
    """
    schema = address.schema
    if await _number(connection, address) == len(migrations):
        return []
    async with connection.transaction():
        await connection.execute(_LOCK, schema)
        number = await reached(connection, address, migrations)
        if number is None:
            if await connection.fetchval("SELECT to_regnamespace($1)", f'"{schema}"') is None:
                await connection.execute(f'CREATE SCHEMA "{schema}"')
            await connection.execute(_MARKED)
            number = 0
        for migration in migrations[number:]:
            await connection.execute(migration.sql)
            await connection.execute(
                f"INSERT INTO {_MARK} (number, name, only_adds) VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.adds,
            )
        return [migration.name for migration in migrations[number:]]


async def reached(
    connection: asyncpg.Connection, address: Address, migrations: list[Migration]
) -> int | None:
    """The last migration applied, None before the first; refuses what is newer or not ours."""
    number = await _number(connection, address)
    if number is None:
        await _refuse_foreign(connection, address)
    elif await connection.fetchval(_BEYOND, len(migrations)):
        raise StoreNewer(
            f"{address.shown()} was written by a newer Tenure (schema {number}, this one knows"
            f" {len(migrations)}): start that one. Nothing was touched."
        )
    return number


async def has(connection: asyncpg.Connection, address: Address, table: str) -> bool:
    """Whether the schema has this table."""
    # Read as a table is: `to_regclass` can answer from before this session waited for the lock.
    return await connection.fetchval(_THERE, address.schema, table) is not None


async def _number(connection: asyncpg.Connection, address: Address) -> int | None:
    """The last migration applied; None where there was none."""
    if not await has(connection, address, _MARK):
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


async def go_on_after_restore(connection: asyncpg.Connection) -> None:
    """Events that were restored here carry another server's transaction numbers: go on after them.

    Without this they would wait until this server has counted as far, and new ones stand before.
    """
    await connection.execute(
        f"UPDATE horizon SET moved = (SELECT max(position) >> {PLACE_BITS} FROM outbox) + 1"
        " - pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        f" WHERE (SELECT max(position) >> {PLACE_BITS} FROM outbox)"
        " >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + moved"
    )
