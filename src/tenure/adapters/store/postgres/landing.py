"""Takes the records of another store, page by page, before a plane uses them.

How far each table reaches is kept in the transaction that brings its rows, so a move that was
killed goes on.  A schema that holds anything else is refused, and no plane opens one that does not
hold everything yet.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import asyncpg

from tenure.adapters.store.postgres import schema, server
from tenure.adapters.store.postgres.server import Address
from tenure.core.errors import StoreForeign
from tenure.core.records import TABLES
from tenure.ports.store import Key, Value
from tenure.sqlite.migrations import read_migrations

_NOTES = "tenure_move"
_NOTED = f"CREATE TABLE IF NOT EXISTS {_NOTES} (name TEXT PRIMARY KEY, said TEXT NOT NULL)"
_SAY = (
    f"INSERT INTO {_NOTES} (name, said) VALUES ($1, $2)"
    " ON CONFLICT (name) DO UPDATE SET said = excluded.said"
)
_SAID = f"SELECT said FROM {_NOTES} WHERE name = $1"
_MOVE, _WHOLE = "move", "whole"
_UNDER_WAY = (
    f"SELECT EXISTS (SELECT FROM {_NOTES} WHERE name = $1)"
    f" AND NOT EXISTS (SELECT FROM {_NOTES} WHERE name = $2)"
)
_NAME = "INSERT INTO plane (one, name) VALUES ($1, $2) ON CONFLICT DO NOTHING"

Record = tuple[Value, ...]


async def refuse_half_moved(connection: asyncpg.Connection, address: Address) -> None:
    """StoreForeign if records are being moved there, or were and not all of them came."""
    if not await schema.has(connection, address, _NOTES):
        return
    if await connection.fetchval(_UNDER_WAY, _MOVE, _WHOLE):
        raise StoreForeign(
            f"the records of another store are being moved to {address.shown()}, and not all are"
            " there yet: go on with tenure migrate-store, in the home that they come from. Nothing"
            " was touched."
        )


@asynccontextmanager
async def landing(url: str) -> AsyncIterator["Landing"]:
    """A connection to the schema that the URL names, with its tables made."""
    address = server.read_address(url)
    try:
        connection = await server.connect(address, "tenure move")
        try:
            await server.refuse_unfit(connection)
            await schema.migrate(connection, address, read_migrations(schema.HERE / "migrations"))
            yield Landing(connection, address)
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.GONE) as error:
        raise server.translate_error(error, address) from None


class Landing:
    """One schema while records are moved to it."""

    def __init__(self, connection: asyncpg.Connection, address: Address) -> None:
        self._connection = connection
        self._address = address

    def shown(self) -> str:
        """Where it is, without a password."""
        return self._address.shown()

    async def begin(self, move: str) -> None:
        """Refuse what another move, or a plane, has written here."""
        async with self._connection.transaction():
            await self._connection.execute(_NOTED)
            known = await self._connection.fetchval(_SAID, _MOVE)
            if known is None:
                filled = [
                    table
                    for table in TABLES
                    if await self._connection.fetchval(f"SELECT EXISTS (SELECT FROM {table})")
                ]
                if filled:
                    raise self._foreign(f"it has rows in {', '.join(filled)}")
                await self._connection.execute(_SAY, _MOVE, move)
            elif known != move:
                raise self._foreign("another store was, or is being, moved there")

    def _foreign(self, why: str) -> StoreForeign:
        return StoreForeign(
            f"{self.shown()} is not empty ({why}): nothing was moved. Name another schema, like"
            " postgresql://…?schema=tenure2."
        )

    async def last_key(self, table: str) -> Key:
        """The key of the last row that is there; empty: none is."""
        said = await self._connection.fetchval(_SAID, f"table {table}")
        return tuple(json.loads(said)) if said else ()

    async def take(self, table: str, records: Sequence[Record], last: Key) -> None:
        """Copy the rows, and note the last one."""
        columns = TABLES[table].key + TABLES[table].columns
        async with self._connection.transaction():
            await self._connection.copy_records_to_table(
                table, records=records, columns=columns, schema_name=self._address.schema
            )
            await self._connection.execute(_SAY, f"table {table}", json.dumps(last))

    async def list_records(self, table: str, *, after: Key, limit: int) -> Sequence[Record]:
        """Rows in key order."""
        key = TABLES[table].key
        columns = ",".join(key + TABLES[table].columns)
        marks = ",".join(f"${number}" for number in range(1, len(after) + 1))
        beyond = f"WHERE ({','.join(key)}) > ({marks})" if after else ""
        rows = await self._connection.fetch(
            f"SELECT {columns} FROM {table} {beyond} ORDER BY {','.join(key)} LIMIT {limit}",
            *after,
        )
        return [tuple(row) for row in rows]

    async def end(self, counters: Sequence[tuple[str, int]], names: Mapping[str, str]) -> None:
        """Set what is counted and whose it is, and note that everything is there."""
        async with self._connection.transaction():
            await self._connection.executemany(_NAME, names.items())
            for name, value in counters:
                await self._connection.execute(
                    "INSERT INTO counter (name, value) VALUES ($1, $2)"
                    " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    name,
                    value,
                )
            await self._connection.execute(_SAY, _WHOLE, "yes")
