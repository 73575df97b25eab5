"""`PostgresStore`: writes through the committer, reads on read-only connections."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

import asyncpg

from tenure.adapters.store.postgres import horizon
from tenure.adapters.store.postgres.background_connection import BackgroundConnection
from tenure.adapters.store.postgres.committer import ExclusiveWork, PostgresCommitter
from tenure.adapters.store.postgres.readers import Readers
from tenure.adapters.store.postgres.session import Session
from tenure.core.errors import Defect, StoreError
from tenure.core.events import EPOCH_SPAN, in_epoch
from tenure.core.records.operation import IntentRecord, JournalRecord, OperationRecord
from tenure.core.records.outbox import OutboxRecord
from tenure.core.records.table import table_of
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


class PostgresStore:
    """Implements `tenure.ports.store.Store` for any number of concurrent processes."""

    def __init__(
        self,
        committer: PostgresCommitter,
        readers: Readers,
        background: BackgroundConnection,
        queries: dict[str, str],
        *,
        now: Callable[[], float],
        uses_server_time: bool,
    ) -> None:
        """With `uses_server_time` the server checks leases by its own clock, else by `now`."""
        self.now = now
        self._uses_server_time = uses_server_time
        self.commit = committer.commit
        self._committer = committer
        self._readers = readers
        self._background = background
        self._queries = queries
        committer.on_wake_hint = background.send

    def listen(self, on_wake_hint: Callable[[WakeHint], None]) -> None:
        """Call `on_wake_hint` for the hints of other processes; a hint may be lost."""
        self._background.listen(on_wake_hint)

    def claim(
        self, queue: Queue, worker: str, *, limit: int, except_plans: Sequence[str] = ()
    ) -> asyncio.Future[Sequence[ClaimedOperation]]:
        """Claim alone, after all earlier changes: its rows are not known in advance."""
        match queue:
            case Queue.OPERATIONS:
                return self._committer.run(self._claim_work(worker, limit, list(except_plans)))
            case _ as never:
                assert_never(never)

    def _claim_work(self, worker: str, limit: int, except_plans: list[str]) -> ExclusiveWork:
        async def run(session: Session, name: str) -> list[ClaimedOperation]:
            session.mark_commit_sent()
            now = self.now()
            lease_time = None if self._uses_server_time else now
            rows = await session.connection.fetch(
                self._queries["claim"], worker, now, limit, name, lease_time, except_plans
            )
            return sorted(ClaimedOperation(*row) for row in rows)

        async def read_answer(session: Session, name: str) -> list[ClaimedOperation]:
            rows = await session.connection.fetch(self._queries["claimed"], name, worker)
            return sorted(ClaimedOperation(*row) for row in rows)

        return ExclusiveWork(run, read_answer)

    def begin_epoch(self, epoch: int) -> asyncio.Future[None]:
        """Raise the counters alone, after all earlier changes; positions of events stay."""

        async def run(session: Session, name: str) -> None:
            session.mark_commit_sent()
            await session.connection.execute(
                self._queries["begin_epoch"], in_epoch(0, epoch), EPOCH_SPAN, name, self.now()
            )

        async def read_answer(_: Session, __: str) -> None:
            """Return None: there is no answer to read."""

        return self._committer.run(ExclusiveWork(run, read_answer))

    async def list_due(self, worker: str) -> Sequence[ClaimedOperation]:
        """Read due operations by the index of open operations."""
        rows = await self._readers.fetch(self._queries["list_due"], worker, self.now())
        return [ClaimedOperation(*row) for row in rows]

    async def was_committed(self, change_id: str) -> bool:
        """Search the change ids of recent batches; an id has no spaces."""
        if change_id.split() != [change_id]:
            await self._readers.fetch("SELECT 1")  # raises if the store is closed
            return False
        return bool(await self._readers.fetch(self._queries["was_committed"], change_id))

    async def find(self, record: type[R], key: Key) -> R | None:
        """Read one row by its key."""
        table = table_of(record)
        where = " AND ".join(f"{name} = ${n}" for n, name in enumerate(table.key, 1))
        columns = ", ".join(table.key + table.columns)
        row = await self._readers.fetchrow(
            f"SELECT {columns} FROM {table.name} WHERE {where}", *key
        )
        return None if row is None else tuple.__new__(record, row)

    async def load(self, operation: str) -> LoadedOperation | None:
        """Read three tables with one statement, so from one snapshot."""
        found = await self._readers.fetchrow(self._queries["load"], operation)
        if found is None:
            return None
        row, journal, intents = found
        return LoadedOperation(
            _read(OperationRecord, row),
            [_read(JournalRecord, line) for line in journal],
            [_read(IntentRecord, intent) for intent in intents],
        )

    async def list_operations(
        self, tenant: str, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Read one page."""
        chosen = list(states) or None
        rows = await self._readers.fetch(
            self._queries["list_operations"], tenant, chosen, after, limit
        )
        return [_read(OperationRecord, row) for row in rows]

    async def list_resources(self, tenant: str, agent: str) -> Sequence[IntentRecord]:
        """Read the intents of the agent's operations."""
        rows = await self._readers.fetch(self._queries["list_resources"], tenant, agent)
        return [_read(IntentRecord, row) for row in rows]

    async def list_living(
        self, slot: str, agent_generations: Sequence[tuple[str, int]], *, gone: str
    ) -> frozenset[str]:
        """Read the keys by the index of agents' operations."""
        agents, generations = (
            [one for one, _ in agent_generations],
            [number for _, number in agent_generations],
        )
        query = self._queries["list_living"]
        rows = await self._readers.fetch(query, slot, agents, generations, gone)
        return frozenset(str(row["key"]) for row in rows)

    async def list_open(
        self, *, states: Sequence[str] = (), after: str = "", limit: int = 100
    ) -> Sequence[OperationRecord]:
        """Read one page by the index of open operations."""
        chosen = list(states) or None
        rows = await self._readers.fetch(self._queries["list_open"], chosen, after, limit)
        return [_read(OperationRecord, row) for row in rows]

    async def list_events(self, *, after: int = 0, limit: int = 100) -> Sequence[OutboxRecord]:
        """Read one page of events up to the horizon, in the order of transactions."""
        rows = await self._readers.fetch_events(horizon.LIST_EVENTS, after, limit)
        return [OutboxRecord._make(row) for row in rows]

    async def newest_event(self) -> int:
        """Read the largest position up to the horizon."""
        return int((await self._readers.fetch_events(horizon.NEWEST_POSITION))[0][0])

    async def count_events(self, *, until: int) -> Mapping[str, TenantEvents]:
        """Read every event with one statement."""
        rows = await self._readers.fetch(self._queries["count_events"], until)
        return {row[0]: TenantEvents(row[1], row[2]) for row in rows}

    async def list_rows(
        self, record: type[R], columns: Mapping[str, Value], *, after: Key = (), limit: int = 100
    ) -> Sequence[R]:
        """Read one page."""
        terms, bound = _conditions(record, columns)
        table = table_of(record)
        key = table.key
        if after:
            fixed = 0
            while fixed < len(after) - 1 and key[fixed] in columns:
                fixed += 1  # fixed by `columns`: comparing it too would scan rows that do not match
            parameters = [f"${len(bound) + n}" for n in range(1, len(after) - fixed + 1)]
            terms.append(f"({', '.join(key[fixed : len(after)])}) > ({', '.join(parameters)})")
            bound += after[fixed:]
        where = " WHERE " + " AND ".join(terms) if terms else ""
        rows = await self._readers.fetch(
            f"SELECT {', '.join(key + table.columns)} FROM {table.name}{where}"
            f" ORDER BY {', '.join(key)} LIMIT ${len(bound) + 1}",
            *bound,
            limit,
        )
        return [tuple.__new__(record, row) for row in rows]

    async def count_rows(self, record: type[tuple[Any, ...]], columns: Mapping[str, Value]) -> int:
        """Count the rows with these values."""
        terms, bound = _conditions(record, columns)
        where = " WHERE " + " AND ".join(terms) if terms else ""
        name = table_of(record).name
        rows = await self._readers.fetch(f"SELECT count(*) FROM {name}{where}", *bound)
        return int(rows[0][0])

    async def count_states(self, tenant: str) -> Mapping[tuple[str, str], int]:
        """Count open operations and named agents by their indexes."""
        rows = await self._readers.fetch(self._queries["count_states"], tenant)
        return {(row[0], row[1]): row[2] for row in rows}

    async def plans_of_open_operations(self) -> Sequence[str]:
        """Read the open operations."""
        rows = await self._readers.fetch(self._queries["plans_of_open_operations"])
        return [row[0] for row in rows]

    async def backup(self, path: str) -> None:
        """Raise StoreError: PostgreSQL's own tools make backups."""
        raise StoreError(
            f"No copy was made at {path}: use PostgreSQL's own tools, pg_dump"
            " for a copy of one point in time, or pg_basebackup with archived WAL for any point."
        )

    async def write_problem(self) -> str:
        """Ask the server on a new connection: the open ones may belong to another server."""
        if self._committer.is_full:
            return "the disk of the PostgreSQL server is full"
        return await self._readers.write_problem()

    def stop_waiting(self) -> None:
        """Wait only a moment for a lost server, because the process stops."""
        self._committer.stop_waiting()
        self._readers.stop_waiting()

    async def close(self) -> None:
        """Wait for the last batch, then close every connection."""
        await self._committer.close()
        await self._background.close()
        await self._readers.close()


def _read(record: type[R], row: asyncpg.Record) -> R:
    """Convert a row that may have columns in another order, or more columns."""
    return record(*[row[name] for name in table_of(record).all_columns])


def _conditions(
    record: type[tuple[Any, ...]], columns: Mapping[str, Value]
) -> tuple[list[str], list[Any]]:
    table = table_of(record)
    unknown = [column for column in columns if column not in table.key + table.columns]
    if unknown:
        raise Defect(f"Table {table.name!r} has no column {unknown[0]!r}; nothing was read.")
    terms: list[str] = []
    bound: list[Any] = []
    for name, value in columns.items():
        if value is None:
            terms.append(f"{name} IS NULL")
        else:
            bound.append(value)
            terms.append(f"{name} = ${len(bound)}")
    return terms, bound
