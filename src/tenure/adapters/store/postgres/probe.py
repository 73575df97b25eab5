"""Inspects the server and the schema that a plane would use, and changes nothing."""

from collections.abc import Mapping
from typing import NamedTuple

import asyncpg

from tenure.adapters.store.postgres import schema, server
from tenure.adapters.store.postgres.landing import refuse_half_moved
from tenure.adapters.store.postgres.server import Address
from tenure.core.errors import StoreError
from tenure.core.records.table import table_of
from tenure.ports.store import Key, R
from tenure.sqlite.migrations import Migration, read_migrations

_MAY = "SELECT has_database_privilege(current_database(), $1)"
_MAY_IN_SCHEMA = "SELECT has_schema_privilege(to_regnamespace($1), $2)"


class ServerReport(NamedTuple):
    """What a start would find."""

    summary: str
    """In a sentence."""
    names: Mapping[str, str]
    """Whose store it is, by the keys of table `plane`; nothing before the first start."""


async def inspect_server(url: str) -> ServerReport:
    """What a start would find; a StoreError says what stands in its way."""
    address = server.read_address(url)
    migrations = read_migrations(schema.HERE / "migrations")
    try:
        connection = await server.connect(address, "tenure preflight", standby=True)
        try:
            await server.refuse_unfit(connection)
            await refuse_half_moved(connection, address)
            number = await _reached(connection, address, migrations)
            version = str(await connection.fetchval("SHOW server_version")).partition(" ")[0]
            rows = await connection.fetch("SELECT one, name FROM plane") if number else ()
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.GONE, ValueError) as error:
        raise server.translate_error(error, address) from None
    lacking = max(0, len(migrations) - (number or 0))
    state = "its tables are there"
    if number is None:
        state = "the first start makes its tables"
    elif lacking:
        state = f"the next start applies {lacking} migrations"
    summary = f"PostgreSQL {version} at {address.shown()}; {state}"
    return ServerReport(summary, {str(one): str(name) for one, name in rows})


async def read_row(url: str, record: type[R], key: Key) -> R | None:
    """One row as it stands, and None where no start has made the table yet; as for `probe`."""
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
    except (asyncpg.PostgresError, *server.GONE, ValueError) as error:
        raise server.translate_error(error, address) from None
    return None if found is None else tuple.__new__(record, found)


async def _reached(
    connection: asyncpg.Connection, address: Address, migrations: list[Migration]
) -> int | None:
    """As `schema.reached`.

    Refuses a user who may not do what every session does, or what the next start has to make.
    """
    lacks = [] if await connection.fetchval(_MAY, "TEMP") else ["TEMP on the database"]
    named, number = f'"{address.schema}"', None
    is_there = await connection.fetchval("SELECT to_regnamespace($1)", named) is not None
    if is_there and not await connection.fetchval(_MAY_IN_SCHEMA, named, "USAGE"):
        lacks.append(f"USAGE on schema {address.schema}")
    else:
        number = await schema.reached(connection, address, migrations)
    if number is None or number < len(migrations):
        if is_there and not await connection.fetchval(_MAY_IN_SCHEMA, named, "CREATE"):
            lacks.append(f"CREATE on schema {address.schema}")
        elif not is_there and not await connection.fetchval(_MAY, "CREATE"):
            lacks.append("CREATE on the database")
    if lacks:
        user = await connection.fetchval("SELECT current_user::text")
        raise StoreError(
            f"{address.shown()} can be reached, but its user {user} lacks"
            f" {' and '.join(lacks)}: GRANT it. Nothing was touched."
        )
    return number
