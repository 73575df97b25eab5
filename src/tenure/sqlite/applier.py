"""Applies the changes of a batch inside a transaction that the committer opens and commits.

There are three methods, each slower than the one before.  All give the same answers.  If a method
cannot tell which change to refuse, it raises, and the committer tries the batch with the next one:
- `collect` writes the rows of many changes grouped by statement.  The statement of a
  prepared write also checks its guards; other guards are checked one by one;
- `apply` writes one change after the other.  It inserts new rows first, so that a refused change is
  undone by deleting them, without the cost of a savepoint;
- `apply_alone` gives each change a savepoint, so that a failing change fails alone.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from tenure.core.audit import link
from tenure.core.errors import Defect, StoreFull, TenureError
from tenure.core.records.table import TableShape
from tenure.ports.store import (
    ChainHash,
    Change,
    CommitRefusal,
    Drop,
    Is,
    Next,
    PreparedWrite,
    Put,
    Row,
    Set,
    Writes,
)
from tenure.sqlite.guards import meets
from tenure.sqlite.statements import Statements, TableColumns

RESERVE_BYTES = 32 * 1024 * 1024
"""Free disk space that is reserved for work already accepted."""
BATCHES_MAX = 1_000
"""Batches whose change ids are kept in the table `batch`."""
CACHED_COUNTERS_MAX = 10_000
"""Counters that are cached between batches."""
DISK_ERRORS = (
    apsw.BusyError, apsw.CantOpenError, apsw.CorruptError, apsw.FullError, apsw.IOError,
    apsw.LockedError, apsw.NoMemError, apsw.NotADBError, apsw.ProtocolError, apsw.ReadOnlyError,
)  # fmt: skip
"""Errors of the disk or of another program: no change causes them, so none is tried alone."""

BatchWork = Callable[[apsw.Cursor], Any]


class Rows(list[Any]):
    """Values for one statement."""

    __slots__ = ("generated",)

    def __init__(self) -> None:
        self.generated: tuple[int, ...] | None = None
        """Positions that the store fills in, equal for all rows; None while there is no row.

        A row with other positions makes the statement fail; the next method then writes it.
        """


class ChangeFailure(NamedTuple):
    """Stands for the answer to a change that was not applied; its caller gets the error."""

    error: Exception


class _RowCountMismatch(Exception):
    """A collected row had a conflict or did not exist; it is not known of which change."""


class _NeedsSavepoint(Exception):
    """A `Set` found no row, and the change's earlier writes can be undone only by a savepoint."""

    def __init__(self, write: Set) -> None:
        super().__init__(write)
        self.write = write


class Applier:
    """Applies one batch at a time, and has its applied change ids and its new counter values."""

    def __init__(
        self,
        connection: apsw.Connection,
        tables: Mapping[str, TableShape],
        *,
        free_bytes: Callable[[], int],
    ) -> None:
        self._cursor = connection.cursor()
        self._changes = connection.changes
        self._total = connection.total_changes
        self._statements = Statements(tables)
        self._rows_by_write: dict[PreparedWrite, list[Any]] = {}
        """Collected parameters by prepared write."""
        self._prepared_statements: list[tuple[PreparedWrite, str, list[Any]]] = []
        """The same lists in the order of writing, each with its SQL; first those with guards."""
        self._puts: defaultdict[TableColumns, Rows] = defaultdict(Rows)
        """Collected new rows, by table and columns."""
        self._sets: defaultdict[str, Rows] = defaultdict(Rows)
        self._drops: defaultdict[str, Rows] = defaultdict(Rows)
        self._pending_keys: set[Any] = set()
        """First key columns of rows that are collected and not written yet."""
        self._free_bytes = free_bytes
        self._is_disk_full: bool | None = None
        """Whether free space is below the reserve; None until this batch has checked."""
        self._change_ids: list[str] = []
        self._has_run_work = False
        self._numbers: dict[str, int] = {}
        """Cached values of counters, as the file has them."""
        self._new_numbers: dict[str, int] = {}
        """Counters that this batch has incremented."""
        self._heads: dict[str, str] = {}
        """The last hash of each chained table, including rows that are not written yet."""
        self._batch = int(self._cursor.execute("SELECT coalesce(max(number), 0) FROM batch").get)

    # --------------------------------------------------------------------------------- one batch

    def begin(self) -> None:
        """Start a batch."""
        if len(self._numbers) > CACHED_COUNTERS_MAX:
            self._numbers.clear()
        self._change_ids.clear()
        self._has_run_work, self._is_disk_full = False, None

    def finish(self) -> bool:
        """Write the counters and change ids of the batch; False if the batch wrote nothing."""
        self._write_collected()
        execute = self._cursor.execute
        self._write_counters()
        if self._change_ids:
            self._batch += 1
            ids = " ".join(filter(None, self._change_ids))
            execute("INSERT INTO batch (number, changes) VALUES (?, ?)", (self._batch, ids))
            execute("DELETE FROM batch WHERE number <= ?", (self._batch - BATCHES_MAX,))
        return self._has_run_work or bool(self._change_ids)

    def _write_counters(self) -> None:
        """Write all new counter values with one statement; one each would double their cost."""
        self._cursor.execute(
            "INSERT INTO counter (name, value) SELECT key, value FROM json_each(?) WHERE true"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (msgspec.json.encode(self._new_numbers).decode(),),
        )
        self._numbers |= self._new_numbers
        self._new_numbers.clear()

    def with_counters(self, work: BatchWork) -> BatchWork:
        """Wrap work that changes counters: they are written before it and read again after it."""

        def run(cursor: apsw.Cursor) -> None:
            self._write_counters()
            self._numbers.clear()
            work(cursor)

        return run

    def discard(self) -> None:
        """Forget the state of a batch that was rolled back; counters are read again."""
        self._numbers.clear()
        self._new_numbers.clear()
        self._heads.clear()
        self._clear_collected()

    # ---------------------------------------------------------------------- many changes at once

    def collect(self, work: Change | BatchWork) -> Any:
        """Check the guards of one change, and collect its rows to write them with other rows.

        If a change reads or writes a collected row, all collected rows are written first.
        """
        if type(work) is not Change:
            self._write_collected()
            return self.apply(work)
        if work.is_new_work and self._is_full():
            return ChangeFailure(StoreFull(_DISK_FULL))
        if work.guards:
            for guard in work.guards:
                if guard.key[0] in self._pending_keys:
                    self._write_collected()
            refusal = self._check_guards(work.guards)
            if refusal is not None:
                return refusal
        last, pending, rows_by_write = None, self._pending_keys, self._rows_by_write
        for prepared, values in zip(work.prepared_writes, work.parameters, strict=True):
            rows = rows_by_write.get(prepared)
            if rows is None:
                rows = self._rows_of(prepared)
            if prepared.generated:
                rows.append(self._fill_generated(values, prepared.generated))
                continue
            if prepared.guards and last is not None:
                raise _RowCountMismatch  # its guard may be on a row of this change
            key = values[0]
            if key is not last:
                if key in pending:
                    self._write_collected()
                pending.add(key)
                last = key
            rows.append(values)
        if work.writes:
            self._collect_writes(work.writes)
        self._change_ids.append(work.id)
        return None

    def _rows_of(self, prepared: PreparedWrite) -> list[Any]:
        """A new list for the parameters of a prepared write that this applier has not seen yet."""
        rows: list[Any] = []
        sql = self._statements.prepared_statement(prepared)
        self._prepared_statements.append((prepared, sql, rows))
        self._prepared_statements.sort(key=lambda one: (not one[0].guards, not one[0].adds))
        self._rows_by_write[prepared] = rows
        return rows

    def _collect_writes(self, writes: Writes) -> None:
        """Collect the rows of one change."""
        pending, puts, statements = self._pending_keys, self._puts, self._statements
        last: Any = None
        own_keys: list[Any] = []
        """First key columns of the rows that this change writes."""
        write: Any  # Put, Set or Drop; its type is checked below
        for write in writes:
            kind, key = type(write), write.key
            if key[0] is not last:
                last = key[0]
                own_keys.append(last)
                if last in pending:
                    self._write_collected()
            if kind is Put:
                rows = puts[write.table, *write.row]
                values = [*key, *write.row.values()]
                generated = rows.generated
                if generated is None:
                    generated = rows.generated = _generated_positions(values)
                if generated:
                    values = self._fill_generated(values, generated)
                    own_keys[-1], last = values[0], None
                rows.append(values)
            elif kind is Set:
                row = write.row
                self._sets[statements.sets[write.table, *row]].append((*row.values(), *key))
            else:
                self._drops[statements.drops[(write.table,)]].append(key)
        pending.update(own_keys)

    def _write_collected(self) -> None:
        """Write the collected rows.

        Prepared writes with guards come first: the guards refer to the state before this batch.
        After them come new rows, changed rows, and dropped rows.
        """
        write_all = self._cursor.executemany
        before, expected = self._total(), 0
        for _, sql, rows in self._prepared_statements:
            if rows:
                write_all(sql, rows)
                expected += len(rows)
        puts = [(self._statements.puts[columns], rows) for columns, rows in self._puts.items()]
        for sql, rows in (*puts, *self._sets.items()):
            write_all(sql, rows)
            expected += len(rows)
        if self._total() - before != expected:
            raise _RowCountMismatch
        for sql, rows in self._drops.items():
            write_all(sql, rows)
        self._clear_collected()

    def _clear_collected(self) -> None:
        for _, _, rows in self._prepared_statements:
            rows.clear()
        self._puts.clear()
        self._sets.clear()
        self._drops.clear()
        self._pending_keys.clear()

    # -------------------------------------------------------------------------------- one change

    def apply(self, work: Change | BatchWork) -> Any:
        """Apply one change or run one function; returns the answer to give once it is durable."""
        if type(work) is not Change:
            result = work(self._cursor)  # type: ignore[operator]
            self._has_run_work = True
            return result
        if work.is_new_work and self._is_full():
            return ChangeFailure(StoreFull(_DISK_FULL))
        plain = work.expand_prepared()
        refusal = self._check_guards(plain.guards) or self._write(plain.writes)
        if refusal is None:
            self._change_ids.append(work.id)
        return refusal

    def apply_alone(self, work: Change | BatchWork) -> Any:
        """Apply one change inside a savepoint, so that its error affects no other change."""
        new_numbers = dict(self._new_numbers)
        self._cursor.execute("SAVEPOINT one")
        try:
            answer = self.apply(work)
        except DISK_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001 (the caller gets it as the answer)
            self._cursor.execute("ROLLBACK TO one")
            self._new_numbers = new_numbers
            self._heads.clear()
            answer = _caller_answer(error)
        self._cursor.execute("RELEASE one")
        return answer

    def _check_guards(self, guards: tuple[Is, ...]) -> CommitRefusal | None:
        """The refusal for the first guard that does not hold; None if all hold."""
        execute, reads = self._cursor.execute, self._statements.reads
        for guard in guards:
            columns = guard.columns
            found = execute(reads[guard.table, *columns], guard.key).fetchone()
            if found != tuple(columns.values()) and not _holds(guard, found):
                return CommitRefusal(guard, self._find(guard.table, guard.key))
        return None

    def _write(self, writes: tuple[Put | Set | Drop, ...]) -> CommitRefusal | None:
        """Insert new rows, then write the others; a refused insert undoes those before it."""
        execute, changes, puts = self._cursor.execute, self._changes, self._statements.puts
        put_values: list[list[Any]] = []
        others: list[Set | Drop] = []
        # A chained row cannot be deleted again, so it is inserted after all possible conflicts.
        for write in sorted(writes, key=_is_chained):
            if type(write) is not Put:
                others.append(write)  # type: ignore[arg-type]
                continue
            sql = puts[write.table, *write.row]
            values = [*write.key, *write.row.values()]
            values = self._fill_generated(values, _generated_positions(values))
            execute(sql, values)
            put_values.append(values)
            if changes() != 1:
                return self._undo_puts(writes, put_values)
        return self._update_and_delete(others, is_first_write=not put_values) if others else None

    def _update_and_delete(
        self, writes: list[Set | Drop], *, is_first_write: bool
    ) -> CommitRefusal | None:
        """Update rows, then delete rows; `is_first_write` while this change has written nothing."""
        execute, changes, sets = self._cursor.execute, self._changes, self._statements.sets
        drops: list[Drop] = []
        for write in writes:
            if type(write) is not Set:
                drops.append(write)  # type: ignore[arg-type]
                continue
            row = write.row
            execute(sets[write.table, *row], (*row.values(), *write.key))
            if changes() != 1:
                if is_first_write:
                    return CommitRefusal(write, None)
                raise _NeedsSavepoint(write)
            is_first_write = False
        for drop in drops:
            execute(self._statements.drops[(drop.table,)], drop.key)
        return None

    def _undo_puts(
        self, writes: tuple[Put | Set | Drop, ...], put_values: list[list[Any]]
    ) -> CommitRefusal:
        """Delete the rows that this change has inserted; the last insert had a conflict."""
        puts = [write for write in sorted(writes, key=_is_chained) if type(write) is Put]
        puts = puts[: len(put_values)]
        last = puts[-1]
        refusal = CommitRefusal(last, self._find(last.table, put_values[-1][: len(last.key)]))
        for put, values in zip(puts[:-1], put_values[:-1], strict=True):
            self._cursor.execute(self._statements.drops[(put.table,)], values[: len(put.key)])
        for put in puts:
            for value in (*put.key, *put.row.values()):
                if type(value) is Next:
                    self._new_numbers[value.counter] -= 1
        return refusal

    def _fill_generated(self, values: Sequence[Any], positions: tuple[int, ...]) -> list[Any]:
        """The values with a number in place of each `Next` and the row's hash for a `ChainHash`."""
        values, new_numbers = [*values], self._new_numbers
        for position in positions:
            value = values[position]
            if type(value) is Next:
                name = value.counter
                number = new_numbers.get(name)
                if number is None:
                    number = self._numbers.get(name)
                    if number is None:
                        number = 0 if value.begins else self._read_counter(name)
                values[position] = new_numbers[name] = number + 1
            else:
                head = link(self._head(value.table), values[:position])
                values[position] = self._heads[value.table] = head
        return values

    def _read_counter(self, name: str) -> int:
        """The last number of a counter before this batch."""
        return int(self._cursor.execute("SELECT value FROM counter WHERE name=?", (name,)).get or 0)

    def _head(self, table: str) -> str:
        """The hash of the last row of a chained table."""
        head = self._heads.get(table)
        if head is None:
            key, *_, last = self._statements.columns(table)
            sql = f"SELECT {last} FROM {table} ORDER BY {key} DESC LIMIT 1"
            head = self._cursor.execute(sql).get or ""
        return head

    def _find(self, table: str, key: Sequence[Any]) -> Row | None:
        columns = self._statements.columns(table)
        found = self._cursor.execute(self._statements.reads[table, *columns], key).fetchone()
        return None if found is None else dict(zip(columns, found, strict=True))

    def _is_full(self) -> bool:
        """Whether free space is below the reserve; checked at most once a batch."""
        if self._is_disk_full is None:
            self._is_disk_full = self._free_bytes() < RESERVE_BYTES
        return self._is_disk_full


_DISK_FULL = (
    "The disk is nearly full: this was not accepted. Work accepted before is not affected."
    " Free space and retry."
)


def _generated_positions(values: list[Any]) -> tuple[int, ...]:
    """The positions of values that the store fills in."""
    kinds = (Next, ChainHash)
    return tuple(position for position, value in enumerate(values) if type(value) in kinds)


def _is_chained(write: Put | Set | Drop) -> bool:
    return type(write) is Put and ChainHash in map(type, write.row.values())


def _holds(guard: Is, found: tuple[Any, ...] | None) -> bool:
    return found is not None and all(map(meets, guard.columns.values(), found))


def _caller_answer(error: Exception) -> CommitRefusal | ChangeFailure:
    """The answer for a change that failed alone; no error type of SQLite leaves this module."""
    if isinstance(error, _NeedsSavepoint):
        return CommitRefusal(error.write, None)
    if isinstance(error, TenureError):
        return ChangeFailure(error)
    return ChangeFailure(Defect(f"This change cannot be written and was left out: {error}."))
