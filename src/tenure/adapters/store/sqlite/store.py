"""`SqliteStore`: writes through the committer, reads on a read-only connection.

Reads run on the event loop: they are short, and a thread would cost more than they do. Only the
long reads that reconcilers repeat run on a thread (`_read_on_thread`).
"""

import asyncio
import json
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

import apsw
import msgspec

from tenure.core.errors import StoreClosed, StoreError
from tenure.core.events import EPOCH_SPAN, in_epoch
from tenure.core.records import TABLES
from tenure.core.records.operation import IntentRecord, JournalRecord, OperationRecord
from tenure.core.records.outbox import OutboxRecord
from tenure.core.records.table import table_of
from tenure.ports.clock import Clock
from tenure.ports.store import (
    ClaimedOperation,
    Key,
    LoadedOperation,
    Queue,
    R,
    TenantEvents,
    Value,
    WakeHint,
)
from tenure.sqlite.applier import RESERVE_BYTES
from tenure.sqlite.commit_thread import WorkRunner
from tenure.sqlite.committer import Committer
from tenure.sqlite.copy import copy_file
from tenure.sqlite.durable_file import OpenFile
from tenure.sqlite.statements import Statements

_Bindings = Mapping[str, Value] | tuple[Value, ...]
MEBIBYTE = 1024 * 1024
_OPERATION_READ = ("operation", *TABLES["operation"].key, *TABLES["operation"].columns)


class SqliteStore:
    """Implements `tenure.ports.store.Store` on one file."""

    def __init__(
        self,
        file: OpenFile,
        committer: Committer,
        queries: dict[str, str],
        *,
        clock: Clock,
        flush: WorkRunner,
        read_thread: WorkRunner,
    ) -> None:
        self.now = clock.now
        self.commit = committer.commit
        self._file = file
        self._committer = committer
        self._queries = queries
        self._flush, self._read_thread = flush, read_thread
        reader = file.reader()
        self._reader, self._snapshot_reader = reader.cursor(), reader.cursor()
        self._thread_reader = file.reader().cursor()
        self._statements = Statements(TABLES)
        self._is_closed = False

    def listen(self, on_wake_hint: Callable[[WakeHint], None]) -> None:
        """Do nothing: no other process uses the file."""

    def claim(
        self, queue: Queue, worker: str, *, limit: int, except_plans: Sequence[str] = ()
    ) -> Future[Sequence[ClaimedOperation]]:
        """Claim inside a batch of the committer, so that reads and writes share a transaction."""
        excluded = json.dumps(list(except_plans))
        match queue:
            case Queue.OPERATIONS:
                return self._committer.run(
                    lambda cursor: self._claim(cursor, worker, limit, excluded)
                )
            case _ as never:
                assert_never(never)

    def _claim(
        self, cursor: apsw.Cursor, worker: str, limit: int, except_plans: str
    ) -> list[ClaimedOperation]:
        now = self.now()
        dead_workers = cursor.execute(self._queries["dead_workers"], {"now": now}).fetchall()
        ids: list[str] = []
        for (dead,) in dead_workers:
            bindings = {"worker": dead, "limit": limit, "except_plans": except_plans}
            found = cursor.execute(self._queries["open_of_worker"], bindings)
            ids.extend(name for (name,) in found)
        if not ids:
            return []
        chosen = json.dumps(sorted(ids)[:limit])
        cursor.execute(self._queries["claim_intents"], {"ids": chosen, "now": now})
        rows: list[tuple[Any, ...]] = cursor.execute(
            self._queries["claim_operations"], {"worker": worker, "ids": chosen}
        ).fetchall()
        return [ClaimedOperation(*row) for row in sorted(rows)]

    def begin_epoch(self, epoch: int) -> Future[None]:
        """Raise the counters inside a batch of the committer."""
        numbers = {"start": in_epoch(0, epoch), "span": EPOCH_SPAN}

        def begin(cursor: apsw.Cursor) -> None:
            cursor.execute(self._queries["begin_epoch"], numbers)

        return self._committer.run_on_counters(begin)

    async def list_due(self, worker: str) -> Sequence[ClaimedOperation]:
        """Read due operations by the index of open operations."""
        bindings: _Bindings = {"worker": worker, "now": self.now()}
        return [ClaimedOperation(*row) for row in self._read(self._queries["list_due"], bindings)]

    async def was_committed(self, change_id: str) -> bool:
        """Search the change ids of recent batches; an id has no spaces."""
        return change_id.split() == [change_id] and bool(
            self._read(self._queries["was_committed"], {"id": change_id})
        )

    async def find(self, record: type[R], key: Key) -> R | None:
        """Read one row by its key."""
        table = table_of(record)
        rows = self._read(self._statements.reads[table.name, *table.key, *table.columns], key)
        return tuple.__new__(record, rows[0]) if rows else None

    async def load(self, operation: str) -> LoadedOperation | None:
        """Read three tables from one snapshot, which the first cursor keeps open."""
        try:
            sql = self._statements.reads[_OPERATION_READ]
            snapshot = self._snapshot_reader.execute(sql, (operation,))
        except apsw.Error as error:
            raise self._read_error(error) from None
        try:
            found = snapshot.fetchone()
            if found is None:
                return None
            journal = self._list(JournalRecord, "load_journal", (operation,))
            intents = self._list(IntentRecord, "load_intents", (operation,))
            return LoadedOperation(tuple.__new__(OperationRecord, found), journal, intents)
        finally:
            snapshot.fetchall()

    async def list_operations(
        self, tenant: str, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Read one page."""
        chosen = json.dumps(list(states)) if states else None
        bindings = {"tenant": tenant, "states": chosen, "after": after, "limit": limit}
        return self._list(OperationRecord, "list_operations", bindings)

    async def list_resources(self, tenant: str, agent: str) -> Sequence[IntentRecord]:
        """Read the intents of the agent's operations."""
        return self._list(IntentRecord, "list_resources", {"tenant": tenant, "agent": agent})

    async def list_living(
        self, slot: str, agent_generations: Sequence[tuple[str, int]], *, gone: str
    ) -> frozenset[str]:
        """Read the keys by the index of agents' operations, on a thread.

        The query returns one row, because the thread would wait for the GIL at each row.
        """
        bindings = {
            "slot": slot,
            "agent_generations": msgspec.json.encode(agent_generations).decode(),
            "gone": gone,
        }
        ((keys,),) = await self._read_on_thread(self._queries["list_living"], bindings)
        return frozenset(json.loads(keys))

    async def list_open(
        self, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Read one page by the index of open operations."""
        chosen = json.dumps(list(states)) if states else None
        bindings = {"states": chosen, "after": after, "limit": limit}
        return self._list(OperationRecord, "list_open", bindings)

    async def list_events(self, *, after: int = 0, limit: int = 100) -> Sequence[OutboxRecord]:
        """Read one page."""
        return self._list(OutboxRecord, "list_events", {"after": after, "limit": limit})

    async def newest_event(self) -> int:
        """Read the largest key."""
        return int(self._read(self._queries["newest_event"])[0][0])

    async def count_events(self, *, until: int) -> Mapping[str, TenantEvents]:
        """Read every event, on a thread."""
        rows = await self._read_on_thread(self._queries["count_events"], {"until": until})
        return {tenant: TenantEvents(count, oldest) for tenant, count, oldest in rows}

    async def list_rows(
        self, record: type[R], columns: Mapping[str, Value], *, after: Key = (), limit: int = 100
    ) -> Sequence[R]:
        """Read one page."""
        table = table_of(record).name
        sql = self._statements.select(table, columns, after)
        beyond = self._statements.key_after(table, columns, after) if after else ()
        rows = self._read(sql, (*_bindings_of(columns), *beyond, limit))
        return [tuple.__new__(record, row) for row in rows]

    async def count_rows(self, record: type[tuple[Any, ...]], columns: Mapping[str, Value]) -> int:
        """Count the rows with these values."""
        table = table_of(record).name
        return int(self._read(self._statements.count(table, columns), _bindings_of(columns))[0][0])

    async def count_states(self, tenant: str) -> Mapping[tuple[str, str], int]:
        """Count open operations and named agents by their indexes."""
        bindings = {"tenant": tenant}
        rows = self._read(self._queries["count_open_operations"], bindings)
        rows += self._read(self._queries["count_agents"], bindings)
        return {(noun, state): count for noun, state, count in rows}

    async def plans_of_open_operations(self) -> Sequence[str]:
        """Read the open operations."""
        return [digest for (digest,) in self._read(self._queries["plans_of_open_operations"])]

    async def backup(self, path: str) -> None:
        """Copy the committed content of the file."""
        await copy_file(self._file.path, Path(path))

    async def write_problem(self) -> str:
        """Check the file system and its free space."""
        if self._is_closed:
            raise _closed_error()
        if self._file.is_read_only():
            return "the file system of its file is read-only"
        if (free_bytes := self._committer.free_bytes()) < RESERVE_BYTES:
            return (
                f"its disk is full; {free_bytes // MEBIBYTE} MiB are free and new work needs"
                f" {RESERVE_BYTES // MEBIBYTE} MiB"
            )
        return ""

    def stop_waiting(self) -> None:
        """Do nothing: a file needs no connection."""

    async def close(self) -> None:
        """Wait for the last batch, then end the threads, close the connections and the lock."""
        await self._committer.close()
        if not self._is_closed:
            self._is_closed = True
            self._flush.close()
            self._read_thread.close()
            self._file.close()

    def _list(self, record: type[R], query: str, bindings: _Bindings) -> list[R]:
        rows = self._read(self._queries[query], bindings)
        size = len(record.__annotations__)
        if rows and len(rows[0]) != size:  # a later release has added columns at the end
            rows = [row[:size] for row in rows]
        return [tuple.__new__(record, row) for row in rows]

    def _read(self, sql: str, bindings: _Bindings = ()) -> list[tuple[Any, ...]]:
        try:
            return self._reader.execute(sql, bindings).fetchall()
        except apsw.Error as error:
            raise self._read_error(error) from None

    async def _read_on_thread(self, sql: str, bindings: _Bindings) -> list[tuple[Any, ...]]:
        if self._is_closed:
            raise _closed_error()
        read: Future[BaseException | None] = asyncio.get_running_loop().create_future()
        rows: list[tuple[Any, ...]] = []

        def work() -> None:
            rows.extend(self._thread_reader.execute(sql, bindings))

        def on_done(error: BaseException | None) -> None:
            if not read.done():  # its caller stopped waiting
                read.set_result(error)

        self._read_thread(work, on_done)
        error = await read
        if error is not None:
            raise self._read_error(error) from None
        return rows

    def _read_error(self, error: BaseException) -> StoreError:
        """The error of a failed read; StoreClosed if the store was closed."""
        if self._is_closed:
            return _closed_error()
        return StoreError(f"The store cannot be read ({error}): nothing was changed.")


def _closed_error() -> StoreClosed:
    return StoreClosed("This store is closed: nothing can be read.")


def _bindings_of(columns: Mapping[str, Value]) -> tuple[Value, ...]:
    return tuple(value for value in columns.values() if value is not None)
