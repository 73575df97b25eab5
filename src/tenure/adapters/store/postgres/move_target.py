"""Receives the records of another store, page by page, before a plane uses the schema.

The last copied key of each table is stored in the transaction that copies its rows, so a move that
was killed continues.  A schema with other rows is refused, and no plane opens a schema whose move
is not complete.
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

_PROGRESS_TABLE = "tenure_move"
_CREATE_PROGRESS_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {_PROGRESS_TABLE} (name TEXT PRIMARY KEY, said TEXT NOT NULL)"
)
_SET_PROGRESS = (
    f"INSERT INTO {_PROGRESS_TABLE} (name, said) VALUES ($1, $2)"
    " ON CONFLICT (name) DO UPDATE SET said = excluded.said"
)
_GET_PROGRESS = f"SELECT said FROM {_PROGRESS_TABLE} WHERE name = $1"
_MOVE, _COMPLETE = "move", "whole"
"""Rows of the progress table: the id of the move, and that it is complete."""
_IS_INCOMPLETE = (
    f"SELECT EXISTS (SELECT FROM {_PROGRESS_TABLE} WHERE name = $1)"
    f" AND NOT EXISTS (SELECT FROM {_PROGRESS_TABLE} WHERE name = $2)"
)
_INSERT_NAME = "INSERT INTO plane (one, name) VALUES ($1, $2) ON CONFLICT DO NOTHING"

Record = tuple[Value, ...]


async def refuse_incomplete_move(connection: asyncpg.Connection, address: Address) -> None:
    """Raise StoreForeign if a move to this schema has started and is not complete."""
    if not await schema.has_table(connection, address, _PROGRESS_TABLE):
        return
    if await connection.fetchval(_IS_INCOMPLETE, _MOVE, _COMPLETE):
        raise StoreForeign(
            f"the records of another store are being moved to {address.display()}, and the move is"
            " not complete: continue it with tenure migrate-store, in the home of that store."
            " Nothing was changed."
        )


@asynccontextmanager
async def open_move_target(url: str) -> AsyncIterator["PostgresMoveTarget"]:
    """Open the schema that the URL names and create its tables."""
    address = server.read_address(url)
    try:
        connection = await server.connect(address, "tenure move")
        try:
            await server.check_server(connection)
            await schema.migrate(connection, address, read_migrations(schema.FOLDER / "migrations"))
            yield PostgresMoveTarget(connection, address)
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.LOST_CONNECTION_ERRORS) as error:
        raise server.translate_error(error, address) from None


class PostgresMoveTarget:
    """One schema while records are moved to it."""

    def __init__(self, connection: asyncpg.Connection, address: Address) -> None:
        self._connection = connection
        self._address = address

    def display(self) -> str:
        """The address without the password."""
        return self._address.display()

    async def begin(self, move: str) -> None:
        """Start or continue this move; refuse a schema with rows of another move or of a plane."""
        async with self._connection.transaction():
            await self._connection.execute(_CREATE_PROGRESS_TABLE)
            started = await self._connection.fetchval(_GET_PROGRESS, _MOVE)
            if started is None:
                filled = [
                    table
                    for table in TABLES
                    if await self._connection.fetchval(f"SELECT EXISTS (SELECT FROM {table})")
                ]
                if filled:
                    raise self._foreign(f"it has rows in {', '.join(filled)}")
                await self._connection.execute(_SET_PROGRESS, _MOVE, move)
            elif started != move:
                raise self._foreign("it is the target of another move")

    def _foreign(self, why: str) -> StoreForeign:
        return StoreForeign(
            f"{self.display()} is not empty ({why}): nothing was moved. Name another schema, like"
            " postgresql://…?schema=tenure2."
        )

    async def last_key(self, table: str) -> Key:
        """The key of the last copied row of a table; empty: none was copied."""
        last_key = await self._connection.fetchval(_GET_PROGRESS, f"table {table}")
        return tuple(json.loads(last_key)) if last_key else ()

    async def insert(self, table: str, records: Sequence[Record], last: Key) -> None:
        """Insert the rows, and record the last key."""
        columns = TABLES[table].key + TABLES[table].columns
        async with self._connection.transaction():
            await self._connection.copy_records_to_table(
                table, records=records, columns=columns, schema_name=self._address.schema
            )
            await self._connection.execute(_SET_PROGRESS, f"table {table}", json.dumps(last))

    async def list_records(self, table: str, *, after: Key, limit: int) -> Sequence[Record]:
        """Read rows in key order."""
        key = TABLES[table].key
        columns = ",".join(key + TABLES[table].columns)
        parameters = ",".join(f"${number}" for number in range(1, len(after) + 1))
        condition = f"WHERE ({','.join(key)}) > ({parameters})" if after else ""
        rows = await self._connection.fetch(
            f"SELECT {columns} FROM {table} {condition} ORDER BY {','.join(key)} LIMIT {limit}",
            *after,
        )
        return [tuple(row) for row in rows]

    async def end(self, counters: Sequence[tuple[str, int]], names: Mapping[str, str]) -> None:
        """Write the counters and the rows of `plane`, and record that the move is complete."""
        async with self._connection.transaction():
            await self._connection.executemany(_INSERT_NAME, names.items())
            for name, value in counters:
                await self._connection.execute(
                    "INSERT INTO counter (name, value) VALUES ($1, $2)"
                    " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                    name,
                    value,
                )
            await self._connection.execute(_SET_PROGRESS, _COMPLETE, "yes")
