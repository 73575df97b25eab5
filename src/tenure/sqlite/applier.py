"""Applies the changes of a batch inside a transaction that somebody else opens and commits.

There are three ways, each a little slower and more careful than the one before; all give the same
answers, and whatever the first cannot tell raises, so that the batch is tried the next way:
- `collect` writes the rows of many changes grouped by statement; the guards of lines are looked at
  by the statement that changes their row, others one by one;
- `apply` writes one change after the other.  New rows go first, so that a refusal can be taken
  back by hand: no savepoint is paid for;
- `apply_alone` gives each change a savepoint, so that a poisoned one fails alone.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from tenure.core.audit import link
from tenure.core.errors import Defect, StoreFull, TenureError
from tenure.ports.store import (
    ChainHash,
    Change,
    CommitRefusal,
    Drop,
    Header,
    Is,
    Next,
    Put,
    Row,
    Set,
    Shape,
    Writes,
)
from tenure.sqlite.guards import meets
from tenure.sqlite.statements import Named, Statements

RESERVE_BYTES = 32 * 1024 * 1024
"""Room on the disk that is kept for work already accepted."""
BATCHES_KEPT = 1_000
"""Batches whose changes can still be looked up by id."""
NUMBERS_KEPT = 10_000
"""Counters held in memory between batches."""
TROUBLE = (
    apsw.BusyError, apsw.CantOpenError, apsw.CorruptError, apsw.FullError, apsw.IOError,
    apsw.LockedError, apsw.NoMemError, apsw.NotADBError, apsw.ProtocolError, apsw.ReadOnlyError,
)  # fmt: skip
"""Errors of the disk or of another program: no change is to blame, and none is tried alone."""

Work = Callable[[apsw.Cursor], Any]


class Rows(list[Any]):
    """Values for one statement."""

    __slots__ = ("generated",)

    def __init__(self) -> None:
        self.generated: tuple[int, ...] | None = None
        """Where the store fills them in: the same places in every row; None: there is no row yet.

        A row that has them elsewhere makes the statement fail, and is written the next way.
        """


class ChangeFailure(NamedTuple):
    """In place of an answer: this change was not applied, and its caller is told why."""

    error: Exception


class _Uncounted(Exception):
    """Some collected row was in the way of another, or was not there; nobody knows whose."""


class _Again(Exception):
    """This `Set` found no row, and what its change has written cannot be taken back by hand."""

    def __init__(self, write: Set) -> None:
        super().__init__(write)
        self.write = write


class Applier:
    """Knows what one batch has done so far: which changes it applied, which numbers it gave."""

    def __init__(
        self, connection: apsw.Connection, tables: Mapping[str, Shape], *, room: Callable[[], int]
    ) -> None:
        self._cursor = connection.cursor()
        self._changes = connection.changes
        self._total = connection.total_changes
        self._statements = Statements(tables)
        self._lined: dict[Header, list[Any]] = {}
        """Lines by their headers; those that look at guards are written first."""
        self._ordered: list[tuple[Header, str, list[Any]]] = []
        """The same lists, in the order in which they are written, each with its statement."""
        self._puts: defaultdict[Named, Rows] = defaultdict(Rows)
        """By table and columns."""
        self._sets: defaultdict[str, Rows] = defaultdict(Rows)
        self._drops: defaultdict[str, Rows] = defaultdict(Rows)
        self._touched: set[Any] = set()
        """First parts of the keys of rows that were collected and are not written yet."""
        self._room = room
        self._full: bool | None = None
        self._applied: list[str] = []
        self._worked = False
        self._numbers: dict[str, int] = {}
        """Counters as they stand in the file."""
        self._raised: dict[str, int] = {}
        """Counters that this batch has raised."""
        self._heads: dict[str, str] = {}
        """The last hash of a chained table, those collected and not written yet included."""
        self._batch = int(self._cursor.execute("SELECT coalesce(max(number), 0) FROM batch").get)

    # --------------------------------------------------------------------------------- one batch

    def begin(self) -> None:
        """A batch begins; the numbers of the last one, if they are held, are on disk."""
        if len(self._numbers) > NUMBERS_KEPT:
            self._numbers.clear()
        self._applied.clear()
        self._worked, self._full = False, None

    def finish(self) -> bool:
        """Write down what the batch counted and applied; whether it did anything at all."""
        self._pour()
        execute = self._cursor.execute
        self._write_counted()
        if self._applied:
            self._batch += 1
            ids = " ".join(filter(None, self._applied))
            execute("INSERT INTO batch (number, changes) VALUES (?, ?)", (self._batch, ids))
            execute("DELETE FROM batch WHERE number <= ?", (self._batch - BATCHES_KEPT,))
        return self._worked or bool(self._applied)

    def _write_counted(self) -> None:
        """One statement for all of them: each more would cost as much again as its row."""
        self._cursor.execute(
            "INSERT INTO counter (name, value) SELECT key, value FROM json_each(?) WHERE true"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (msgspec.json.encode(self._raised).decode(),),
        )
        self._numbers |= self._raised
        self._raised.clear()

    def counts(self, work: Work) -> Work:
        """Work that changes counters: all of them are in the file before it, and read after it."""

        def run(cursor: apsw.Cursor) -> None:
            self._write_counted()
            self._numbers.clear()
            work(cursor)

        return run

    def forget(self) -> None:
        """The batch was rolled back: what was counted is read again when it is needed."""
        self._numbers.clear()
        self._raised.clear()
        self._heads.clear()
        self._leave()

    # ---------------------------------------------------------------------- many changes at once

    def collect(self, work: Change | Work) -> Any:
        """Look at one change's guards, and leave its rows to be written with those of others.

        Whoever touches a row that was collected has it written first.
        """
        if type(work) is not Change:
            self._pour()
            return self.apply(work)
        if work.admits and self._is_full():
            return ChangeFailure(StoreFull(_FULL))
        if work.guards:
            for guard in work.guards:
                if guard.key[0] in self._touched:
                    self._pour()
            refused = self._look(work.guards)
            if refused is not None:
                return refused
        last, touched, lined = None, self._touched, self._lined
        for header, line in zip(work.headers, work.lines, strict=True):
            rows = lined.get(header)
            if rows is None:
                rows = self._rows_of(header)
            if header.generated:
                rows.append(self._numbered(line, header.generated))
                continue
            if header.guards and last is not None:
                raise _Uncounted  # what it looks at may be of this very change
            key = line[0]
            if key is not last:
                if key in touched:
                    self._pour()
                touched.add(key)
                last = key
            rows.append(line)
        if work.writes:
            self._gather(work.writes)
        self._applied.append(work.id)
        return None

    def _rows_of(self, header: Header) -> list[Any]:
        """Where the lines of a header gather that was not met before."""
        rows: list[Any] = []
        self._ordered.append((header, self._statements.of_lines(header), rows))
        self._ordered.sort(key=lambda one: (not one[0].guards, not one[0].adds))
        self._lined[header] = rows
        return rows

    def _gather(self, writes: Writes) -> None:
        """Leave the rows of one change."""
        touched, puts, statements = self._touched, self._puts, self._statements
        last: Any = None
        mine: list[Any] = []
        """First parts of the keys it touches."""
        write: Any  # which of the three it is, its type says
        for write in writes:
            kind, key = type(write), write.key
            if key[0] is not last:
                last = key[0]
                mine.append(last)
                if last in touched:
                    self._pour()
            if kind is Put:
                rows = puts[write.table, *write.row]
                values = [*key, *write.row.values()]
                generated = rows.generated
                if generated is None:
                    generated = rows.generated = _generated(values)
                if generated:
                    values = self._numbered(values, generated)
                    mine[-1], last = values[0], None
                rows.append(values)
            elif kind is Set:
                row = write.row
                self._sets[statements.sets[write.table, *row]].append((*row.values(), *key))
            else:
                self._drops[statements.drops[(write.table,)]].append(key)
        touched.update(mine)

    def _pour(self) -> None:
        """Write what was collected: first what looks at guards, as those are about what was before.

        Then new rows, changed rows, and last those that go.
        """
        write_all = self._cursor.executemany
        before, due = self._total(), 0
        for _, sql, rows in self._ordered:
            if rows:
                write_all(sql, rows)
                due += len(rows)
        puts = [(self._statements.puts[named], rows) for named, rows in self._puts.items()]
        for sql, rows in (*puts, *self._sets.items()):
            write_all(sql, rows)
            due += len(rows)
        if self._total() - before != due:
            raise _Uncounted
        for sql, rows in self._drops.items():
            write_all(sql, rows)
        self._leave()

    def _leave(self) -> None:
        for _, _, rows in self._ordered:
            rows.clear()
        self._puts.clear()
        self._sets.clear()
        self._drops.clear()
        self._touched.clear()

    # -------------------------------------------------------------------------------- one change

    def apply(self, work: Change | Work) -> Any:
        """Apply one change, or run one function; the answer to give once it is durable."""
        if type(work) is not Change:
            result = work(self._cursor)  # type: ignore[operator]
            self._worked = True
            return result
        if work.admits and self._is_full():
            return ChangeFailure(StoreFull(_FULL))
        plain = work.plain()
        refused = self._look(plain.guards) or self._put(plain.writes)
        if refused is None:
            self._applied.append(work.id)
        return refused

    def apply_alone(self, work: Change | Work) -> Any:
        """The same inside a savepoint, so that an error is this change's own."""
        raised = dict(self._raised)
        self._cursor.execute("SAVEPOINT one")
        try:
            answer = self.apply(work)
        except TROUBLE:
            raise
        except Exception as error:  # noqa: BLE001 (it becomes this caller's answer)
            self._cursor.execute("ROLLBACK TO one")
            self._raised = raised
            self._heads.clear()
            answer = _answer(error)
        self._cursor.execute("RELEASE one")
        return answer

    def _look(self, guards: tuple[Is, ...]) -> CommitRefusal | None:
        """The first guard that does not hold."""
        execute, reads = self._cursor.execute, self._statements.reads
        for guard in guards:
            columns = guard.columns
            found = execute(reads[guard.table, *columns], guard.key).fetchone()
            if found != tuple(columns.values()) and not _holds(guard, found):
                return CommitRefusal(guard, self._find(guard.table, guard.key))
        return None

    def _put(self, writes: tuple[Put | Set | Drop, ...]) -> CommitRefusal | None:
        """Write new rows: if one is refused, those before it are new too and are taken back."""
        execute, changes, puts = self._cursor.execute, self._changes, self._statements.puts
        made: list[list[Any]] = []
        others: list[Set | Drop] = []
        # What is chained can never be taken back, so it goes last, when nothing new can clash.
        for write in sorted(writes, key=_is_chained):
            if type(write) is not Put:
                others.append(write)  # type: ignore[arg-type]
                continue
            sql = puts[write.table, *write.row]
            values = [*write.key, *write.row.values()]
            values = self._numbered(values, _generated(values))
            execute(sql, values)
            made.append(values)
            if changes() != 1:
                return self._clash(writes, made)
        return self._set(others, untouched=not made) if others else None

    def _set(self, writes: list[Set | Drop], *, untouched: bool) -> CommitRefusal | None:
        """Change rows, then drop rows; `untouched` while this change has written nothing."""
        execute, changes, sets = self._cursor.execute, self._changes, self._statements.sets
        drops: list[Drop] = []
        for write in writes:
            if type(write) is not Set:
                drops.append(write)  # type: ignore[arg-type]
                continue
            row = write.row
            execute(sets[write.table, *row], (*row.values(), *write.key))
            if changes() != 1:
                if untouched:
                    return CommitRefusal(write, None)
                raise _Again(write)
            untouched = False
        for drop in drops:
            execute(self._statements.drops[(drop.table,)], drop.key)
        return None

    def _clash(self, writes: tuple[Put | Set | Drop, ...], made: list[list[Any]]) -> CommitRefusal:
        """Take back what this change has put; the last of it met a row in its way."""
        puts = [write for write in sorted(writes, key=_is_chained) if type(write) is Put]
        puts = puts[: len(made)]
        last = puts[-1]
        refused = CommitRefusal(last, self._find(last.table, made[-1][: len(last.key)]))
        for put, values in zip(puts[:-1], made[:-1], strict=True):
            self._cursor.execute(self._statements.drops[(put.table,)], values[: len(put.key)])
        for put in puts:
            for value in (*put.key, *put.row.values()):
                if type(value) is Next:
                    self._raised[value.counter] -= 1
        return refused

    def _numbered(self, line: Sequence[Any], places: tuple[int, ...]) -> list[Any]:
        """The line with a number for every `Next` and the hash of the row for a `ChainHash`."""
        values, raised = [*line], self._raised
        for place in places:
            value = values[place]
            if type(value) is Next:
                name = value.counter
                number = raised.get(name)
                if number is None:
                    number = self._numbers.get(name)
                    if number is None:
                        number = 0 if value.begins else self._read_counter(name)
                values[place] = raised[name] = number + 1
            else:
                head = link(self._head(value.table), values[:place])
                values[place] = self._heads[value.table] = head
        return values

    def _read_counter(self, name: str) -> int:
        """The last number that a counter gave, before this batch."""
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
        """Asked of the disk at most once a batch."""
        if self._full is None:
            self._full = self._room() < RESERVE_BYTES
        return self._full


_FULL = (
    "The disk is nearly full: this was not accepted, and what was accepted before is kept."
    " Make room and ask again."
)


def _generated(values: list[Any]) -> tuple[int, ...]:
    """Where the store fills in these values."""
    kinds = (Next, ChainHash)
    return tuple(place for place, value in enumerate(values) if type(value) in kinds)


def _is_chained(write: Put | Set | Drop) -> bool:
    return type(write) is Put and ChainHash in map(type, write.row.values())


def _holds(guard: Is, found: tuple[Any, ...] | None) -> bool:
    return found is not None and all(map(meets, guard.columns.values(), found))


def _answer(error: Exception) -> CommitRefusal | ChangeFailure:
    """What the caller of a change that failed alone is told; nothing of SQLite passes."""
    if isinstance(error, _Again):
        return CommitRefusal(error.write, None)
    if isinstance(error, TenureError):
        return ChangeFailure(error)
    return ChangeFailure(Defect(f"This change cannot be written and was left out: {error}."))
