"""A pool of connections that only read; a lost one is replaced, and its query is sent again."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import asyncpg

from tenure.adapters.store.postgres import horizon, server
from tenure.adapters.store.postgres.history import History
from tenure.core.errors import StoreClosed

PAUSE_SECONDS = 0.05
T = TypeVar("T")


class Readers:
    """Uses the first connection that is free; waits `patience_seconds` for a lost server."""

    def __init__(
        self, address: server.Address, *, most: int, patience_seconds: float, history: History
    ) -> None:
        self._address = address
        self._history = history
        self._places = asyncio.Semaphore(most)
        self._patience = patience_seconds
        self._free: list[asyncpg.Connection] = []
        self._closed = False

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """Every row of this query."""
        return await self._ask(lambda connection: connection.fetch(sql, *arguments))

    async def fetchrow(self, sql: str, *arguments: Any) -> asyncpg.Record | None:
        """The first row of this query."""
        return await self._ask(lambda connection: connection.fetchrow(sql, *arguments))

    async def fetch_events(self, sql: str, *arguments: Any) -> Sequence[asyncpg.Record]:
        """Every row of a query on events, as far as events can be read (`horizon`)."""
        return await self._ask(lambda connection: horizon.ask(connection, sql, *arguments))

    async def write_problem(self) -> str:
        """Why a new session cannot write; see `Store.write_problem`."""
        self._refuse_closed()
        return await server.write_problem(self._address)

    def stop_waiting(self) -> None:
        """The process is stopping: wait for a lost server only a moment."""
        self._patience = min(self._patience, server.HURRY_SECONDS)

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        for connection in self._free:
            await server.close(connection)
        self._free.clear()

    async def _ask(self, ask: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        since = loop.time()
        while True:
            try:
                return await self._ask_once(ask)
            except (*server.GONE, *server.BUSY) as error:
                if loop.time() > since + self._patience:
                    raise server.translate_error(error, self._address) from None
            except (asyncpg.PostgresError, ValueError) as error:
                raise server.translate_error(error, self._address) from None
            await asyncio.sleep(PAUSE_SECONDS)

    async def _ask_once(self, ask: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        self._refuse_closed()
        self._history.refuse_rewound()
        async with self._places:
            connection = self._free.pop() if self._free else await self._connect()
            try:
                async with asyncio.timeout(server.STATEMENT_SECONDS):
                    answer = await ask(connection)
            except asyncpg.PostgresError as error:
                self._give_back(connection, lost=isinstance(error, server.GONE))
                raise
            except BaseException:
                self._give_back(connection, lost=True)
                raise
            self._give_back(connection, lost=False)
            return answer

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreClosed("This store is closed: nothing can be read.")

    async def _connect(self) -> asyncpg.Connection:
        connection = await server.connect(
            self._address, "tenure reader", server.SESSION, history=self._history
        )
        # Not when it connects: a client that wants a primary takes such a session for a standby's.
        await connection.execute("SET default_transaction_read_only = on")
        return connection

    def _give_back(self, connection: asyncpg.Connection, *, lost: bool) -> None:
        if lost or self._closed or connection.is_closed():
            connection.terminate()
        else:
            self._free.append(connection)
