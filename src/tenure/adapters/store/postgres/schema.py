"""Creates the schema and applies its migrations, under a lock that all processes respect.

Each run is one transaction: a process that dies in it, or a file that fails, changes nothing.
"""

from pathlib import Path

import asyncpg

from tenure.adapters.store.postgres.functions import ROW_NUMBER_BITS, Types
from tenure.adapters.store.postgres.server import Address
from tenure.core.errors import StoreForeign, StoreNewer
from tenure.sqlite.migrations import Migration

FOLDER = Path(__file__).parent
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tenure migrations'), hashtext($1))"
_MIGRATION_TABLE = "tenure_migration"
_CREATE_MIGRATION_TABLE = (
    f"CREATE TABLE {_MIGRATION_TABLE}"
    " (number BIGINT PRIMARY KEY, name TEXT NOT NULL, only_adds BOOLEAN NOT NULL)"
)
_HAS_TABLE = (
    "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE nspname = $1 AND relname = $2"
)
_IS_NEWER = f"SELECT EXISTS (SELECT FROM {_MIGRATION_TABLE} WHERE number > $1 AND NOT only_adds)"


async def migrate(
    connection: asyncpg.Connection, address: Address, migrations: list[Migration]
) -> list[str]:
    """Apply the missing migrations and return their names; refuse a newer or foreign schema.

    A newer schema to which was only added is accepted: see `tenure.sqlite.migrations`.
    """
    schema = address.schema
    if await _read_number(connection, address) == len(migrations):
        return []
    async with connection.transaction():
        await connection.execute(_LOCK, schema)
        number = await find_last_migration(connection, address, migrations)
        if number is None:
            if await connection.fetchval("SELECT to_regnamespace($1)", f'"{schema}"') is None:
                await connection.execute(f'CREATE SCHEMA "{schema}"')
            await connection.execute(_CREATE_MIGRATION_TABLE)
            number = 0
        for migration in migrations[number:]:
            await connection.execute(migration.sql)
            await connection.execute(
                f"INSERT INTO {_MIGRATION_TABLE} (number, name, only_adds) VALUES ($1, $2, $3)",
                migration.number,
                migration.name,
                migration.only_adds,
            )
        return [migration.name for migration in migrations[number:]]


async def find_last_migration(
    connection: asyncpg.Connection, address: Address, migrations: list[Migration]
) -> int | None:
    """The number of the last migration, None before the first; refuse a newer or foreign schema."""
    number = await _read_number(connection, address)
    if number is None:
        await _refuse_foreign(connection, address)
    elif await connection.fetchval(_IS_NEWER, len(migrations)):
        raise StoreNewer(
            f"{address.display()} was written by a newer Tenure (schema {number}, this one knows"
            f" {len(migrations)}): start that one. Nothing was touched."
        )
    return number


async def has_table(connection: asyncpg.Connection, address: Address, table: str) -> bool:
    """Whether the schema has this table."""
    # Not `to_regclass`: its answer may be from before this session waited for the lock.
    return await connection.fetchval(_HAS_TABLE, address.schema, table) is not None


async def _read_number(connection: asyncpg.Connection, address: Address) -> int | None:
    """The number of the last migration that was applied; None if there was none."""
    if not await has_table(connection, address, _MIGRATION_TABLE):
        return None
    found: int = await connection.fetchval(
        f"SELECT coalesce(max(number), 0) FROM {_MIGRATION_TABLE}"
    )
    return found


async def _refuse_foreign(connection: asyncpg.Connection, address: Address) -> None:
    other = await connection.fetchval(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace($1) LIMIT 1",
        f'"{address.schema}"',
    )
    if other is not None:
        raise StoreForeign(
            f"{address.display()} has tables of another program ({other}): name another schema,"
            " like postgresql://…?schema=tenure2. Nothing was touched."
        )


async def read_types(connection: asyncpg.Connection, schema: str) -> Types:
    """Read the type of every column."""
    rows = await connection.fetch(
        "SELECT table_name, column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = $1",
        schema,
    )
    return {(row[0], row[1]): row[2] for row in rows}


async def shift_positions_after_restore(connection: asyncpg.Connection) -> None:
    """Make positions of new events larger than those of events restored from another server.

    A position contains a transaction id.  The restored ids may be larger than this server's, so
    restored events would stay unreadable and new events would be ordered before them.
    """
    await connection.execute(
        f"UPDATE horizon SET moved = (SELECT max(position) >> {ROW_NUMBER_BITS} FROM outbox) + 1"
        " - pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        f" WHERE (SELECT max(position) >> {ROW_NUMBER_BITS} FROM outbox)"
        " >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint + moved"
    )
