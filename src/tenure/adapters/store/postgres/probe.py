"""Inspects the server and the schema that a plane would use, and changes nothing."""

from collections.abc import Mapping
from typing import NamedTuple

import asyncpg

from tenure.adapters.store.postgres import schema, server
from tenure.adapters.store.postgres.move_target import refuse_incomplete_move
from tenure.adapters.store.postgres.server import Address
from tenure.core.errors import StoreError
from tenure.core.records.table import table_of
from tenure.ports.store import Key, R
from tenure.sqlite.migrations import Migration, read_migrations

_HAS_DATABASE_PRIVILEGE = "SELECT has_database_privilege(current_database(), $1)"
_HAS_SCHEMA_PRIVILEGE = "SELECT has_schema_privilege(to_regnamespace($1), $2)"


class ServerReport(NamedTuple):
    """What a start would find on the server."""

    summary: str
    """One sentence about the server and the schema."""
    names: Mapping[str, str]
    """The rows of table `plane`, which say whose store it is; empty before the first start."""


async def inspect_server(url: str) -> ServerReport:
    """Return what a start would find; a StoreError says why it would fail."""
    address = server.read_address(url)
    migrations = read_migrations(schema.FOLDER / "migrations")
    try:
        connection = await server.connect(address, "tenure preflight", standby=True)
        try:
            await server.check_server(connection)
            await refuse_incomplete_move(connection, address)
            number = await _check_privileges(connection, address, migrations)
            version = str(await connection.fetchval("SHOW server_version")).partition(" ")[0]
            rows = await connection.fetch("SELECT one, name FROM plane") if number else ()
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.LOST_CONNECTION_ERRORS, ValueError) as error:
        raise server.translate_error(error, address) from None
    missing = max(0, len(migrations) - (number or 0))
    state = "its tables exist"
    if number is None:
        state = "the first start creates its tables"
    elif missing:
        state = f"the next start applies {missing} migrations"
    summary = f"PostgreSQL {version} at {address.display()}; {state}"
    return ServerReport(summary, {str(one): str(name) for one, name in rows})


async def read_row(url: str, record: type[R], key: Key) -> R | None:
    """Read one row; None if there is none, or if no start has created the table yet."""
    address, table = server.read_address(url), table_of(record)
    where = " AND ".join(f"{name} = ${n}" for n, name in enumerate(table.key, 1))
    columns = ", ".join((*table.key, *table.columns))
    query = f"SELECT {columns} FROM {table.name} WHERE {where}"
    try:
        connection = await server.connect(address, "tenure doctor")
        try:
            found = await connection.fetchrow(query, *key)
        except asyncpg.UndefinedTableError:
            found = None
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.LOST_CONNECTION_ERRORS, ValueError) as error:
        raise server.translate_error(error, address) from None
    return None if found is None else tuple.__new__(record, found)


async def _check_privileges(
    connection: asyncpg.Connection, address: Address, migrations: list[Migration]
) -> int | None:
    """Return the number of the last migration; StoreError if the user lacks a privilege.

    Checked are the privileges of every session, and those that the next start needs.
    """
    missing = (
        []
        if await connection.fetchval(_HAS_DATABASE_PRIVILEGE, "TEMP")
        else ["TEMP on the database"]
    )
    quoted, number = f'"{address.schema}"', None
    exists = await connection.fetchval("SELECT to_regnamespace($1)", quoted) is not None
    if exists and not await connection.fetchval(_HAS_SCHEMA_PRIVILEGE, quoted, "USAGE"):
        missing.append(f"USAGE on schema {address.schema}")
    else:
        number = await schema.find_last_migration(connection, address, migrations)
    if number is None or number < len(migrations):
        if exists and not await connection.fetchval(_HAS_SCHEMA_PRIVILEGE, quoted, "CREATE"):
            missing.append(f"CREATE on schema {address.schema}")
        elif not exists and not await connection.fetchval(_HAS_DATABASE_PRIVILEGE, "CREATE"):
            missing.append("CREATE on the database")
    if missing:
        user = await connection.fetchval("SELECT current_user::text")
        raise StoreError(
            f"{address.display()} can be reached, but its user {user} lacks"
            f" {' and '.join(missing)}: GRANT it. Nothing was touched."
        )
    return number
