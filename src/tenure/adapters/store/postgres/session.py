"""One writer connection, with the functions it has created and the statements it has prepared.

An error that is raised before `is_commit_sent` is true means that nothing was stored.
"""

from asyncio import timeout
from collections.abc import Sequence
from typing import Any

import asyncpg

from tenure.adapters.store.postgres import horizon, server
from tenure.adapters.store.postgres.functions import REFUSED, Functions, Shape
from tenure.adapters.store.postgres.history import History
from tenure.adapters.store.postgres.parts import (
    NUMBERED,
    Builder,
    Numbers,
    Parts,
    StatementCall,
    count_numbers,
    refusals,
)
from tenure.adapters.store.postgres.texts import MARKS, SPLIT_TEXTS, UNUSED, join_texts
from tenure.ports.store import CommitRefusal

CACHED_STATEMENTS_MAX = 200
"""Prepared statements of a connection: one for each combination of shapes."""
_NUMBER = """
CREATE FUNCTION pg_temp.numbered(
    a_names text[], a_many bigint[], OUT numbers bigint[], OUT head text
) LANGUAGE plpgsql AS $$ BEGIN
    WITH raised AS (
        INSERT INTO counter (name, value) SELECT * FROM unnest(a_names, a_many)
        ON CONFLICT (name) DO UPDATE SET value = counter.value + excluded.value
        RETURNING name, value
    ) SELECT array_agg(value ORDER BY name) INTO numbers FROM raised;
    SELECT hash INTO head FROM audit ORDER BY position DESC LIMIT 1;
END $$"""
"""Counters are locked in the order of their names; then the last row of the chain is read."""


_UNREPLICATED = "SET LOCAL synchronous_commit = off; "
"""For statements that only this session needs: they wait for no disk and no standby."""


class BatchRefused(Exception):
    """Some changes of a batch are refused; nothing of the batch was stored."""

    def __init__(self, answers: dict[int, CommitRefusal]) -> None:
        super().__init__(answers)
        self.answers = answers
        """Refusals by position in the batch."""


class Session:
    """Runs batches on one connection; after a connection error it cannot be used again."""

    def __init__(self, connection: asyncpg.Connection, name: str, functions: Functions) -> None:
        self.connection = connection
        self.name = name
        self.is_commit_sent = False
        """Whether the server was asked to commit, so that only it knows what became of it."""
        self._functions = functions
        self._call: StatementCall
        self._names: dict[Shape, str] = {}
        self._statements: dict[tuple[Shape, ...], Any] = {}
        self._numbers = False
        self._lock_seconds = server.LOCK_SECONDS

    async def wait_for_rows(self, seconds: float) -> None:
        """From now on wait so long for a row that somebody else holds."""
        self.is_commit_sent = False
        if seconds != self._lock_seconds:
            await self.connection.execute(f"SET lock_timeout = '{seconds:g}s'")
            self._lock_seconds = seconds

    def send(self) -> None:
        """From here on only the server knows; but not if the connection is known to be gone."""
        if self.connection.is_closed():
            raise ConnectionResetError("the connection was closed")
        self.is_commit_sent = True

    async def apply(self, batch: Sequence[Parts], batch_id: str, at: float) -> None:
        """Apply all of these changes durably; BatchRefused if a guard fails."""
        self.is_commit_sent = False
        noted = (batch_id, at, ids_of(batch))
        wanted = count_numbers(batch)
        self._call = _built(batch).call(*noted, uses_server_time=self._functions.uses_server_time)
        try:
            async with timeout(server.STATEMENT_SECONDS):
                statement = await self._prepared(self._call.shapes)
                if wanted or batch[0].duplicate_put is not None:
                    await self._apply_held(statement, batch, wanted, noted)
                else:
                    arguments = self._joined()
                    self.send()
                    await statement.fetchval(*arguments)
        except asyncpg.PostgresError as error:
            if error.sqlstate != REFUSED:
                raise
            found = refusals(self._call, str(error.detail), self._functions.types)
            raise BatchRefused(found) from None

    async def _apply_held(
        self,
        statement: Any,
        batch: Sequence[Parts],
        wanted: dict[str, int],
        noted: tuple[str, float, str],
    ) -> None:
        """Hold the counters first, so that the numbers and hashes to write are known."""
        if not self._numbers:
            await self.connection.execute(_UNREPLICATED + _NUMBER)
            self._numbers = True
        await self.connection.execute("BEGIN")
        try:
            if wanted:
                names = sorted(wanted.keys() - {NUMBERED})
                ((last, head),) = await self.connection.fetch(
                    "SELECT * FROM pg_temp.numbered($1, $2)", names, [wanted[n] for n in names]
                )
                counts = zip(names, last or (), strict=True)
                before = {name: n - wanted[name] for name, n in counts}
                if NUMBERED in wanted:  # a place among the events: what commits later is beyond it
                    ((place,),) = await horizon.ask(self.connection, horizon.BEYOND)
                    before[NUMBERED] = place - 1 - wanted[NUMBERED]
                numbers = Numbers(before, {"audit": head or ""})
                built = _built(batch, numbers)
                self._call = built.call(*noted, uses_server_time=self._functions.uses_server_time)
            await statement.fetchval(*self._joined())
        except asyncpg.PostgresError as error:
            if not isinstance(error, server.GONE):
                await self.connection.execute("ROLLBACK")
            raise
        except (ValueError, TypeError, OverflowError):
            await self.connection.execute("ROLLBACK")
            raise
        if (
            batch[0].duplicate_put is not None
        ):  # it stands alone, and what it would write goes no further
            await self.connection.execute("ROLLBACK")
            return
        self.send()
        await self.connection.execute("COMMIT")

    async def _prepared(self, shapes: tuple[Shape, ...]) -> Any:
        statement = self._statements.get(shapes)
        if statement is None:
            if len(self._statements) >= CACHED_STATEMENTS_MAX:
                self._statements.clear()
            for shape in shapes:
                await self._make(shape)
            sql = f"SELECT {self._nested(shapes)}"
            statement = self._statements[shapes] = await self.connection.prepare(sql)
        return statement

    def _joined(self) -> list[Any]:
        functions, shapes = self._functions, self._call.shapes
        texts = [is_text for shape in shapes for is_text in functions.of(shape).texts]
        return join_texts(self._call.arguments, texts)

    async def _make(self, shape: Shape) -> None:
        if shape not in self._names:
            name = f"{shape[0]}_{len(self._names)}"
            create = self._functions.of(shape).create
            await self.connection.execute(_UNREPLICATED + create.replace("{name}", name, 1))
            self._names[shape] = name

    def _nested(self, shapes: tuple[Shape, ...]) -> str:
        """Each function around the one before it."""
        sql, bound = UNUSED, len(MARKS)
        for shape in shapes:
            given = ""
            for is_text in self._functions.of(shape).texts:
                bound += 1
                one = f"${bound}"
                given += ", " + (SPLIT_TEXTS.format(given=one) if is_text else one)
            sql = f"pg_temp.{self._names[shape]}({sql}{given})"
        return sql


def _built(batch: Sequence[Parts], numbers: Numbers | None = None) -> Builder:
    builder = Builder(numbers)
    for place, parts in enumerate(batch):
        builder.add(place, parts)
    return builder


def ids_of(batch: Sequence[Parts]) -> str:
    """The ids of these changes, of those that have one."""
    return " ".join(parts.change.id for parts in batch if parts.change.id)


async def open_session(
    address: server.Address, functions: Functions, history: History, fresh: str
) -> Session:
    """A new connection that writes, under a name of its own; StoreRewound by the history."""
    name = f"tenure {fresh}"
    connection = await server.connect(address, name, server.SESSION, history=history)
    return Session(connection, name, functions)
