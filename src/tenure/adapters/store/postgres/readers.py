"""A pool of read-only connections; a lost one is replaced, and its query is sent again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg

from tenure.adapters.store.postgres import horizon, server
from tenure.adapters.store.postgres.history import History
from tenure.core.errors import StoreClosed

RETRY_SECONDS = 0.05
T = TypeVar("T")


class Readers:
    """Runs queries on a free connection; waits `patience_seconds` for a lost server."""

    def __init__(
        self, address: server.Address, *, count: int, patience_seconds: float, history: History
    ) -> None:
        self._address = address
        self._history = history
        self._slots = asyncio.Semaphore(count)
        self._patience = patience_seconds
        self._free: list[asyncpg.Connection] = []
        self._closed = False

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """Return every row of this query."""
        return await self._run(lambda connection: connection.fetch(sql, *arguments))

    async def fetchrow(self, sql: str, *arguments: Any) -> asyncpg.Record | None:
        """Return the first row of this query."""
        return await self._run(lambda connection: connection.fetchrow(sql, *arguments))

    async def fetch_events(self, sql: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """Return the rows of a query on events up to the horizon (see `horizon`)."""
        return await self._run(lambda one: horizon.fetch_readable(one, sql, *arguments))

    async def write_problem(self) -> str:
        """Return why a new session cannot write; see `Store.write_problem`."""
        self._refuse_closed()
        return await server.write_problem(self._address)

    def stop_waiting(self) -> None:
        """Wait only a moment for a lost server, because the process stops."""
        self._patience = min(self._patience, server.STOPPING_SECONDS)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        for connection in self._free:
            await server.close(connection)
        self._free.clear()

    async def _run(self, query: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            try:
                return await self._run_once(query)
            except (*server.LOST_CONNECTION_ERRORS, *server.RETRYABLE_ERRORS) as error:
                if loop.time() > since + self._patience:
                    raise server.translate_error(error, self._address) from None
            except (asyncpg.PostgresError, ValueError) as error:
                raise server.translate_error(error, self._address) from None
            await asyncio.sleep(RETRY_SECONDS)

    async def _run_once(self, query: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        self._refuse_closed()
        self._history.refuse_rewound()
        async with self._slots:
            connection = self._free.pop() if self._free else await self._connect()
            try:
                async with asyncio.timeout(server.STATEMENT_SECONDS):
                    answer = await query(connection)
            except asyncpg.PostgresError as error:
                self._release(connection, is_lost=isinstance(error, server.LOST_CONNECTION_ERRORS))
                raise
            except BaseException:
                self._release(connection, is_lost=True)
                raise
            self._release(connection, is_lost=False)
            return answer

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreClosed("This store is closed: nothing can be read.")

    async def _connect(self) -> asyncpg.Connection:
        connection = await server.connect(
            self._address, "tenure reader", server.SESSION_SETTINGS, history=self._history
        )
        # Not as a setting of the connection: `target_session_attrs=read-write` would refuse it.
        await connection.execute("SET default_transaction_read_only = on")
        return connection

    def _release(self, connection: asyncpg.Connection, *, is_lost: bool) -> None:
        if is_lost or self._closed or connection.is_closed():
            connection.terminate()
        else:
            self._free.append(connection)
