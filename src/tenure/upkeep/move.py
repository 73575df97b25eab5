"""Moves an embedded store to a database: every row, once, compared on both sides before it counts.

Nobody may use the file meanwhile.  Rows go over in key order by pages, and the page and how far it
reaches become true together there, so that a move that was killed goes on where it was.  Only when
every table has the same number of rows and the same hash on both sides is the file marked as moved;
from then on it refuses to be opened and names the place where its records are.

Not moved: leases, whose holders are gone, and the ids of recent changes, whose askers are.
"""

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple, Protocol

import apsw

from tenure.core.errors import Invalid, StoreError, StoreForeign
from tenure.home.atomic_file import replace_whole
from tenure.home.epoch_file import EpochFile
from tenure.ports.store import TABLES, Key, Value
from tenure.sqlite import location
from tenure.sqlite.gate import OpenFile, open_file
from tenure.upkeep.backup import Told
from tenure.upkeep.homes import HomeFile

PAGE = 1_000
LEFT = frozenset({"lease"})
MOVED = [table for table in TABLES if table not in LEFT]
WHOLE = 1 << 256
Record = tuple[Value, ...]


class MoveTarget(Protocol):
    """A database that records are moved to."""

    def shown(self) -> str:
        """Where it is, as it may be told."""
        ...

    async def begin(self, move: str) -> None:
        """Take the records of this move; StoreForeign if others are there."""
        ...

    async def reached(self, table: str) -> Key:
        """The key of the last row that is there; empty: none is."""
        ...

    async def take(self, table: str, records: Sequence[Record], last: Key) -> None:
        """Keep these rows and how far they reach, together."""
        ...

    async def list_records(self, table: str, *, after: Key, limit: int) -> Sequence[Record]:
        """Rows in key order, as they are there."""
        ...

    async def end(self, counters: Sequence[tuple[str, int]], names: Mapping[str, str]) -> None:
        """Count on from these numbers; the records are the store of who is named from now on."""
        ...


class TableComparison(NamedTuple):
    """One table on both sides."""

    table: str
    rows: int
    rows_there: int
    same: bool


async def move(
    source: Path, target: MoveTarget, held: HomeFile, *, names: Mapping[str, str], told: Told
) -> list[TableComparison]:
    """Move every record; after a kill it goes on.  StoreLocked while a plane runs.

    `names` says whose the records are, by the keys of table `plane`: nobody else opens them there.
    """
    _refuse_absent(source)
    opened = open_file(source, held.migrations, application_id=held.application_id)
    try:
        reader = opened.reader()
        await _begin(source, target)
        for table in MOVED:
            await _copy(reader, target, table, told)
        compared = [await _compare(reader, target, table) for table in MOVED]
        if differ := differing(compared):
            raise StoreError(
                f"{target.shown()} is not what {source} holds, in {', '.join(differ)}: the file is"
                " as it was and stays the plane's. Empty that schema, and move again."
            )
        counters = reader.execute("SELECT name, value FROM counter ORDER BY name").fetchall()
        counted = [(str(name), int(str(value))) for name, value in counters]
        await target.end(counted, names)
        told(f"{sum(one.rows for one in compared)} rows are the same on both sides")
        _mark(opened, target.shown())
    finally:
        opened.close()
    return compared


def _refuse_absent(source: Path) -> None:
    if not source.is_file():
        raise Invalid(f"there is no store at {source}: nothing was moved")
    memo = EpochFile(source.parent).read()
    if memo is not None and memo.restoring:
        raise Invalid(f"a restore in {source.parent} was interrupted: say it again first")


def differing(compared: Sequence[TableComparison]) -> list[str]:
    """The tables that are not the same on both sides."""
    return [one.table for one in compared if not one.same or one.rows != one.rows_there]


async def _begin(source: Path, target: MoveTarget) -> None:
    """Begin the move there, or go on with it."""
    note = Path(f"{source}.moving")
    move, is_new = _number_of(source, note, target.shown())
    try:
        await target.begin(move)
    except StoreForeign:
        _forget(note, is_new=is_new)
        raise


def _number_of(source: Path, note: Path, shown: str) -> tuple[str, bool]:
    """The id of this move, written down before its first row, and whether that was done now."""
    is_new = False
    try:
        said = json.loads(note.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # a torn one is of who had moved nothing yet
        said, is_new = {"to": shown, "move": secrets.token_hex(16)}, True
        replace_whole(note, json.dumps(said) + "\n")
    if said["to"] != shown:
        raise Invalid(
            f"{source} is being moved to {said['to']}: go on there. Or give that move up and remove"
            f" {note}; what it has brought there stays, and you may remove it if nothing else is"
            " there. Nothing was moved now"
        )
    return str(said["move"]), is_new


def _forget(note: Path, *, is_new: bool) -> None:
    """Another's records are there: of a move that has just begun no row is anywhere."""
    if is_new:
        note.unlink()


async def _copy(reader: apsw.Connection, target: MoveTarget, table: str, told: Told) -> None:
    after = await target.reached(table)
    moved = 0
    while records := _page(reader, table, after):
        after = _key(table, records[-1])
        await target.take(table, records, after)
        moved += len(records)
    told(f"{table}: {moved} rows moved")


async def _compare(reader: apsw.Connection, target: MoveTarget, table: str) -> TableComparison:
    async def ours(after: Key) -> Sequence[Record]:
        return _page(reader, table, after)

    async def theirs(after: Key) -> Sequence[Record]:
        return await target.list_records(table, after=after, limit=PAGE)

    (rows, summed), (rows_there, summed_there) = [
        await _summed(table, pages) for pages in (_pages(table, ours), _pages(table, theirs))
    ]
    return TableComparison(table, rows, rows_there, summed == summed_there)


class _Read(Protocol):
    async def __call__(self, after: Key) -> Sequence[Record]: ...


async def _pages(table: str, read: _Read) -> AsyncIterator[Sequence[Record]]:
    after: Key = ()
    while records := await read(after):
        yield records
        after = _key(table, records[-1])


async def _summed(table: str, pages: AsyncIterator[Sequence[Record]]) -> tuple[int, int]:
    """How many rows there are, and a hash of them all that does not depend on their order."""
    rows = summed = 0
    async for records in pages:
        rows += len(records)
        for record in records:
            text = json.dumps([table, *record], default=bytes.hex).encode()
            summed = (summed + int.from_bytes(sha256(text).digest(), "big")) % WHOLE
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


def _mark(opened: OpenFile, shown: str) -> None:
    """The file is no store any more: first where its records are, then that they are there."""
    replace_whole(Path(f"{opened.path}{location.MOVED_NOTE}"), f"{shown}\n")
    opened.writer.pragma("application_id", location.MOVED)
    opened.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
