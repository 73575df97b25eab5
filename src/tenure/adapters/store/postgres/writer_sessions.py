"""The writer connections of one store: runs a batch on one of them until its outcome is known.

If a connection is lost after COMMIT was sent, the lost session is ended from another connection and
the batch is looked up by its id.  Then its answer is returned, or it runs again.  Only if that is
not possible in time is the outcome unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from tenure.adapters.store.postgres import server
from tenure.adapters.store.postgres.functions import Functions
from tenure.adapters.store.postgres.history import History
from tenure.adapters.store.postgres.session import Session, open_session
from tenure.core.errors import CommitUnknown
from tenure.core.retry import POSTGRES_COMMIT

FULL_SECONDS = 10.0
"""How long new work is refused after the server reported a full disk."""

SessionCall = Callable[[Session, str], Awaitable[Any]]
"""Runs on a session, with the batch id by which its commit can be looked up."""


class WriterSessions:
    """One session for each lane; a lane is the index of a writer connection."""

    def __init__(
        self,
        address: server.Address,
        functions: Functions,
        history: History,
        *,
        count: int,
        patience_seconds: float,
        new_id: Callable[[], str],
    ) -> None:
        """`patience_seconds` is how long a lost server is waited for, from the first error."""
        self._address = address
        self._functions = functions
        self._history = history
        self._new_id = new_id
        self.patience_seconds = patience_seconds
        self._sessions: list[Session | None] = [None] * count
        self._full_until = 0.0

    def __len__(self) -> int:
        """Return the number of lanes."""
        return len(self._sessions)

    @property
    def is_full(self) -> bool:
        """Whether the server has reported a full disk a short time ago."""
        return asyncio.get_running_loop().time() < self._full_until

    def shorten_patience(self) -> None:
        """Wait only a moment for a lost server, because the process stops."""
        self.patience_seconds = min(self.patience_seconds, server.STOPPING_SECONDS)

    async def close(self) -> None:
        """Close every connection."""
        for lane, session in enumerate(self._sessions):
            if session is not None:
                await server.close(session.connection)
                self._sessions[lane] = None

    async def run_until_known(
        self,
        lane: int,
        name: str,
        run: SessionCall,
        read_answer: SessionCall | None = None,
        *,
        is_blocking: bool,
    ) -> Any:
        """Run it under this batch id until the server has committed or refused it.

        If a row is locked, it is retried here only if it `is_blocking` all other work.

        A batch that may have been committed is looked up first; while that is in doubt no error is
        returned.
        """
        loop = asyncio.get_running_loop()
        since, pauses = 0.0, POSTGRES_COMMIT.delays()
        doubtful = ""
        """The name of a session whose commit is in doubt."""
        while True:
            try:
                session = await self._get_session(lane)
                if doubtful and await _was_committed(session, doubtful, name):
                    answer = None if read_answer is None else read_answer(session, name)
                    return None if answer is None else await _with_timeout(answer)
                doubtful = ""
                return await _with_timeout(run(session, name))
            except Exception as error:
                since = since or loop.time()
                is_locked = isinstance(error, asyncpg.LockNotAvailableError)
                if is_locked and not (is_blocking or doubtful):
                    raise
                if not doubtful:
                    doubtful = self._prepare_retry(lane, error)
                else:
                    self._drop_session(lane)
                if loop.time() > since + self.patience_seconds:
                    raise self._timeout_error(error, doubtful) from None
            await asyncio.sleep(next(pauses))

    def _prepare_retry(self, lane: int, error: Exception) -> str:
        """Return the session whose commit is in doubt, or ""; raise if a retry is useless."""
        if isinstance(error, asyncpg.DiskFullError):
            self._full_until = asyncio.get_running_loop().time() + FULL_SECONDS
            raise server.translate_error(error, self._address) from None
        if isinstance(error, server.LOST_CONNECTION_ERRORS):
            if isinstance(error, asyncpg.InterfaceError) and self._is_open(lane):
                raise error  # the statement was never sent: it is invalid
            return self._drop_session(lane)
        if not isinstance(error, server.RETRYABLE_ERRORS):
            raise error
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            self._drop_session(lane)  # another server may have taken over
        return ""

    async def _get_session(self, lane: int) -> Session:
        session = self._sessions[lane]
        if session is None:
            session = self._sessions[lane] = await open_session(
                self._address, self._functions, self._history, self._new_id()
            )
        return session

    def _is_open(self, lane: int) -> bool:
        session = self._sessions[lane]
        return session is not None and not session.connection.is_closed()

    def _drop_session(self, lane: int) -> str:
        """Terminate the connection; returns its name if a commit of it is in doubt."""
        session, self._sessions[lane] = self._sessions[lane], None
        if session is None:
            return ""
        session.connection.terminate()
        return session.name if session.is_commit_sent else ""

    def _timeout_error(self, error: BaseException, doubtful: str) -> BaseException:
        if not doubtful:
            return server.translate_error(error, self._address)
        return CommitUnknown(
            f"The server was lost while it committed and cannot be reached ({error}): whether the"
            " last changes were stored is known only when it can. Start this process again then."
        )


async def _with_timeout(call: Awaitable[Any]) -> Any:
    """Wait for a call to the server; after STATEMENT_SECONDS the server counts as lost."""
    async with asyncio.timeout(server.STATEMENT_SECONDS):
        return await call


async def _was_committed(session: Session, lost_session: str, name: str) -> bool:
    """Whether the batch of this id was committed; the session that sent it is ended first.

    The row is updated: with synchronous replication the server answers only when the standby has
    the update and everything committed before it.  The lost session may have been ended while it
    waited for the standby; its commit is then visible on the primary all the same.
    """
    async with asyncio.timeout(server.STATEMENT_SECONDS):
        await server.end_session(session.connection, lost_session)
        written = await session.connection.execute("UPDATE batch SET at = at WHERE id = $1", name)
    return str(written) != "UPDATE 0"
