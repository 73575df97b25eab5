"""One writer connection, with the functions it has created and the statements it has prepared.

An error that is raised before `is_commit_sent` is true means that nothing was stored.
"""

from asyncio import timeout
from collections.abc import Sequence
from typing import Any

import asyncpg

from tenure.adapters.store.postgres import horizon, server
from tenure.adapters.store.postgres.functions import REFUSED_SQLSTATE, Functions, FunctionShape
from tenure.adapters.store.postgres.history import History
from tenure.adapters.store.postgres.parts import (
    APPENDED_TABLE,
    Builder,
    ChangeParts,
    Numbers,
    StatementCall,
    count_numbers,
    decode_refusals,
)
from tenure.adapters.store.postgres.texts import MARKS, SPLIT_TEXTS, UNUSED, join_texts
from tenure.ports.store import CommitRefusal

CACHED_STATEMENTS_MAX = 200
"""Prepared statements of a connection: one for each combination of shapes."""
_CREATE_TAKE_NUMBERS = """
CREATE FUNCTION pg_temp.take_numbers(
    a_names text[], a_counts bigint[], OUT numbers bigint[], OUT head text
) LANGUAGE plpgsql AS $$ BEGIN
    WITH raised AS (
        INSERT INTO counter (name, value) SELECT * FROM unnest(a_names, a_counts)
        ON CONFLICT (name) DO UPDATE SET value = counter.value + excluded.value
        RETURNING name, value
    ) SELECT array_agg(value ORDER BY name) INTO numbers FROM raised;
    SELECT hash INTO head FROM audit ORDER BY position DESC LIMIT 1;
END $$"""
"""Takes numbers from counters and reads the last hash of the audit chain.

The counters are locked in the order of their names, so that two batches cannot deadlock.
"""
_UNREPLICATED = "SET LOCAL synchronous_commit = off; "
"""Prefix of statements that only this session needs: they wait for no disk and no standby."""


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
        """Whether COMMIT was sent, so that only the server knows the outcome."""
        self._functions = functions
        self._call: StatementCall
        self._function_names: dict[FunctionShape, str] = {}
        self._statements: dict[tuple[FunctionShape, ...], Any] = {}
        self._has_take_numbers = False
        self._lock_seconds = server.LOCK_SECONDS

    async def set_lock_timeout(self, seconds: float) -> None:
        """Set how long the next statements wait for a locked row."""
        self.is_commit_sent = False
        if seconds != self._lock_seconds:
            await self.connection.execute(f"SET lock_timeout = '{seconds:g}s'")
            self._lock_seconds = seconds

    def mark_commit_sent(self) -> None:
        """Call this just before COMMIT is sent; raises if the connection is known to be closed."""
        if self.connection.is_closed():
            raise ConnectionResetError("the connection was closed")
        self.is_commit_sent = True

    async def apply(self, batch: Sequence[ChangeParts], batch_id: str, at: float) -> None:
        """Apply all of these changes durably; BatchRefused if a guard or an insert fails."""
        self.is_commit_sent = False
        batch_row = (batch_id, at, ids_of(batch))
        counts = count_numbers(batch)
        self._call = _build(batch).call(
            *batch_row, uses_server_time=self._functions.uses_server_time
        )
        try:
            async with timeout(server.STATEMENT_SECONDS):
                statement = await self._prepare(self._call.shapes)
                if counts or batch[0].duplicate_put is not None:
                    await self._apply_with_numbers(statement, batch, counts, batch_row)
                else:
                    arguments = self._join_arguments()
                    self.mark_commit_sent()
                    await statement.fetchval(*arguments)
        except asyncpg.PostgresError as error:
            if error.sqlstate != REFUSED_SQLSTATE:
                raise
            found = decode_refusals(self._call, str(error.detail), self._functions.types)
            raise BatchRefused(found) from None

    async def _apply_with_numbers(
        self,
        statement: Any,
        batch: Sequence[ChangeParts],
        counts: dict[str, int],
        batch_row: tuple[str, float, str],
    ) -> None:
        """Take numbers from the counters first, so that the rows and hashes to write are known."""
        if not self._has_take_numbers:
            await self.connection.execute(_UNREPLICATED + _CREATE_TAKE_NUMBERS)
            self._has_take_numbers = True
        await self.connection.execute("BEGIN")
        try:
            if counts:
                names = sorted(counts.keys() - {APPENDED_TABLE})
                ((last, head),) = await self.connection.fetch(
                    "SELECT * FROM pg_temp.take_numbers($1, $2)", names, [counts[n] for n in names]
                )
                raised = zip(names, last or (), strict=True)
                before = {name: value - counts[name] for name, value in raised}
                if (
                    APPENDED_TABLE in counts
                ):  # positions of events: every later commit has larger ones
                    ((first,),) = await horizon.fetch_readable(
                        self.connection, horizon.FIRST_UNREADABLE
                    )
                    before[APPENDED_TABLE] = first - 1 - counts[APPENDED_TABLE]
                numbers = Numbers(before, {"audit": head or ""})
                builder = _build(batch, numbers)
                self._call = builder.call(
                    *batch_row, uses_server_time=self._functions.uses_server_time
                )
            await statement.fetchval(*self._join_arguments())
        except asyncpg.PostgresError as error:
            if not isinstance(error, server.LOST_CONNECTION_ERRORS):
                await self.connection.execute("ROLLBACK")
            raise
        except (ValueError, TypeError, OverflowError):
            await self.connection.execute("ROLLBACK")
            raise
        if batch[0].duplicate_put is not None:  # it is alone in its batch and always refused
            await self.connection.execute("ROLLBACK")
            return
        self.mark_commit_sent()
        await self.connection.execute("COMMIT")

    async def _prepare(self, shapes: tuple[FunctionShape, ...]) -> Any:
        statement = self._statements.get(shapes)
        if statement is None:
            if len(self._statements) >= CACHED_STATEMENTS_MAX:
                self._statements.clear()
            for shape in shapes:
                await self._create_function(shape)
            sql = f"SELECT {self._nest(shapes)}"
            statement = self._statements[shapes] = await self.connection.prepare(sql)
        return statement

    def _join_arguments(self) -> list[Any]:
        functions, shapes = self._functions, self._call.shapes
        texts = [is_text for shape in shapes for is_text in functions.of(shape).texts]
        return join_texts(self._call.arguments, texts)

    async def _create_function(self, shape: FunctionShape) -> None:
        if shape not in self._function_names:
            name = f"{shape[0]}_{len(self._function_names)}"
            create = self._functions.of(shape).create
            await self.connection.execute(_UNREPLICATED + create.replace("{name}", name, 1))
            self._function_names[shape] = name

    def _nest(self, shapes: tuple[FunctionShape, ...]) -> str:
        """SQL in which each function gets the result of the one before it as first argument."""
        sql, bound = UNUSED, len(MARKS)
        for shape in shapes:
            arguments = ""
            for is_text in self._functions.of(shape).texts:
                bound += 1
                parameter = f"${bound}"
                split = SPLIT_TEXTS.format(parameter=parameter)
                arguments += ", " + (split if is_text else parameter)
            sql = f"pg_temp.{self._function_names[shape]}({sql}{arguments})"
        return sql


def _build(batch: Sequence[ChangeParts], numbers: Numbers | None = None) -> Builder:
    builder = Builder(numbers)
    for position, parts in enumerate(batch):
        builder.add(position, parts)
    return builder


def ids_of(batch: Sequence[ChangeParts]) -> str:
    """The ids of these changes, separated by spaces; some changes have no id."""
    return " ".join(parts.change.id for parts in batch if parts.change.id)


async def open_session(
    address: server.Address, functions: Functions, history: History, session_id: str
) -> Session:
    """Open a writer connection with a name of its own; StoreRewound as `History.check`."""
    name = f"tenure {session_id}"
    connection = await server.connect(address, name, server.SESSION_SETTINGS, history=history)
    return Session(connection, name, functions)
