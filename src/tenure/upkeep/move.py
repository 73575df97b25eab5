"""Moves an embedded store to a database: every row once, compared on both sides at the end.

No process may use the file meanwhile.  Rows are copied in key order by pages.  A page and its last
key are committed together, so that a killed move continues where it was.  The file is marked as
moved only after every table has the same number of rows and the same hash on both sides.  From then
on the file cannot be opened, and the error names the database.

Leases and the ids of recent changes are not moved: the processes that used them have ended.
"""

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

import apsw

from tenure.atomic_file import replace_atomically
from tenure.core.errors import Invalid, StoreError, StoreForeign
from tenure.core.records import TABLES
from tenure.home.epoch_file import EpochFile
from tenure.ports.store import Key, Value
from tenure.sqlite import location
from tenure.sqlite.durable_file import OpenFile, open_file
from tenure.upkeep.backup import Report
from tenure.upkeep.homes import HomeFile

PAGE = 1_000
SKIPPED_TABLES = frozenset({"lease"})
MOVED_TABLES = [table for table in TABLES if table not in SKIPPED_TABLES]
HASH_RANGE = 1 << 256
Record = tuple[Value, ...]


class MoveTarget(Protocol):
    """A database that records are moved to."""

    def display(self) -> str:
        """Its address without the password."""
        ...

    async def begin(self, move: str) -> None:
        """Start or continue this move; StoreForeign if the database has other records."""
        ...

    async def last_key(self, table: str) -> Key:
        """The key of the last row moved so far; empty if none was."""
        ...

    async def insert(self, table: str, records: Sequence[Record], last: Key) -> None:
        """Store these rows and their last key in one transaction."""
        ...

    async def list_records(self, table: str, *, after: Key, limit: int) -> Sequence[Record]:
        """The stored rows in key order."""
        ...

    async def end(self, counters: Sequence[tuple[str, int]], names: Mapping[str, str]) -> None:
        """Set the counters and the rows of table `plane`, and mark the move as complete."""
        ...


class TableComparison(NamedTuple):
    """The comparison of one table on both sides."""

    table: str
    rows: int
    rows_there: int
    same: bool


async def move(
    source: Path, target: MoveTarget, file: HomeFile, *, names: Mapping[str, str], report: Report
) -> list[TableComparison]:
    """Move every record; a killed move continues.  StoreLocked while a plane runs.

    `names` are the rows of table `plane`, which keep other planes from opening the records.
    """
    _refuse_unusable(source)
    opened = open_file(source, file.migrations, application_id=file.application_id)
    try:
        reader = opened.reader()
        await _begin(source, target)
        for table in MOVED_TABLES:
            await _copy(reader, target, table, report)
        comparisons = [await _compare(reader, target, table) for table in MOVED_TABLES]
        if differ := differing(comparisons):
            raise StoreError(
                f"{target.display()} differs from {source} in {', '.join(differ)}: the file was not"
                " changed and is still the plane's store. Empty that schema, and move again."
            )
        counters = reader.execute("SELECT name, value FROM counter ORDER BY name").fetchall()
        counter_values = [(str(name), int(str(value))) for name, value in counters]
        await target.end(counter_values, names)
        report(f"{sum(one.rows for one in comparisons)} rows are the same on both sides")
        _mark(opened, target.display())
    finally:
        opened.close()
    return comparisons


def _refuse_unusable(source: Path) -> None:
    if not source.is_file():
        raise Invalid(f"there is no store at {source}: nothing was moved")
    memo = EpochFile(source.parent).read()
    if memo is not None and memo.restoring:
        raise Invalid(f"a restore in {source.parent} was interrupted: run it again first")


def differing(comparisons: Sequence[TableComparison]) -> list[str]:
    """The tables that differ."""
    return [one.table for one in comparisons if not one.same or one.rows != one.rows_there]


async def _begin(source: Path, target: MoveTarget) -> None:
    """Start the move on the target, or continue it."""
    note = Path(f"{source}.moving")
    move, is_new = _move_id(source, note, target.display())
    try:
        await target.begin(move)
    except StoreForeign:
        _discard_note(note, is_new=is_new)
        raise


def _move_id(source: Path, note: Path, address: str) -> tuple[str, bool]:
    """The id of this move, stored before its first row, and whether it is a new one."""
    is_new = False
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # an incomplete note is of a move without any row
        content, is_new = {"to": address, "move": secrets.token_hex(16)}, True
        replace_atomically(note, json.dumps(content) + "\n")
    if content["to"] != address:
        raise Invalid(
            f"{source} is being moved to {content['to']}: continue there. Or give"
            f" that move up and remove {note}; the rows that it has moved stay there, and you may"
            " remove them if nothing else is there. Nothing was moved now"
        )
    return str(content["move"]), is_new


def _discard_note(note: Path, *, is_new: bool) -> None:
    """Delete the note of a new move that the target has refused; it has moved no row."""
    if is_new:
        note.unlink()


async def _copy(reader: apsw.Connection, target: MoveTarget, table: str, report: Report) -> None:
    after = await target.last_key(table)
    moved = 0
    while records := _page(reader, table, after):
        after = _key(table, records[-1])
        await target.insert(table, records, after)
        moved += len(records)
    report(f"{table}: {moved} rows moved")


async def _compare(reader: apsw.Connection, target: MoveTarget, table: str) -> TableComparison:
    async def ours(after: Key) -> Sequence[Record]:
        return _page(reader, table, after)

    async def theirs(after: Key) -> Sequence[Record]:
        return await target.list_records(table, after=after, limit=PAGE)

    (rows, summed), (rows_there, summed_there) = [
        await _hash_rows(table, pages) for pages in (_pages(table, ours), _pages(table, theirs))
    ]
    return TableComparison(table, rows, rows_there, summed == summed_there)


class _Read(Protocol):
    async def __call__(self, after: Key) -> Sequence[Record]: ...


async def _pages(table: str, read: _Read) -> AsyncIterator[Sequence[Record]]:
    after: Key = ()
    while records := await read(after):
        yield records
        after = _key(table, records[-1])


async def _hash_rows(table: str, pages: AsyncIterator[Sequence[Record]]) -> tuple[int, int]:
    """The number of rows, and a hash of them that does not depend on their order."""
    rows = summed = 0
    async for records in pages:
        rows += len(records)
        for record in records:
            text = json.dumps([table, *record], default=bytes.hex).encode()
            summed = (summed + int.from_bytes(sha256(text).digest(), "big")) % HASH_RANGE
    return rows, summed


def _page(reader: apsw.Connection, table: str, after: Key) -> list[Record]:
    shape = TABLES[table]
    key, columns = ",".join(shape.key), ",".join(shape.key + shape.columns)
    beyond = f"WHERE ({key}) > ({','.join('?' * len(after))})" if after else ""
    found: list[Record] = reader.execute(
        f"SELECT {columns} FROM {table} {beyond} ORDER BY {key} LIMIT {PAGE}",  # noqa: S608
        after,
    ).fetchall()
    return found


def _key(table: str, record: Record) -> Key:
    return tuple(part for part in record[: len(TABLES[table].key)] if isinstance(part, str | int))


def _mark(file: OpenFile, address: str) -> None:
    """Mark the file as moved: first write the target's address, then the application id."""
    replace_atomically(Path(f"{file.path}{location.MOVED_NOTE_SUFFIX}"), f"{address}\n")
    file.writer.pragma("application_id", location.MOVED_APPLICATION_ID)
    file.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
