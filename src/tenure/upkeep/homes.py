"""The files of a home: whose each is, how it is read without touching it, and what it holds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.core.errors import StoreError
from tenure.home.shared_settings import TermsFile
from tenure.sqlite import location
from tenure.sqlite.migrations import Migration, last_migration

STORE = "tenure.db"
ENDS = ("", "-wal", "-shm", "-journal")
"""What belongs to one SQLite file."""


class HomeFile(NamedTuple):
    """One file that a home holds, and what it is to this release."""

    name: str
    application_id: int
    migrations: list[Migration]
    renew: Callable[[Path], None] = lambda _: None
    """Makes void, in the file of a home that is restored, what must not be good again."""


class Content(NamedTuple):
    """What is in one file."""

    version: int
    """The last migration that older code cannot live without."""
    reached: int
    rows: dict[str, int]
    """Rows of every table."""


def is_there(home: Path) -> bool:
    """Whether a plane lives in this home, wherever its store is."""
    return bool(store_elsewhere(home)) or (home / STORE).is_file()


def store_elsewhere(home: Path) -> str:
    """Where the store is that is not in the home, as it may be told; empty: it is there."""
    terms = TermsFile(home).read()
    return terms.store if terms is not None else ""


@contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A connection that reads one snapshot, also while a plane writes."""
    try:
        reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    except apsw.Error as error:
        raise _unreadable(path, error) from None
    try:
        reader.set_busy_timeout(5_000)
        reader.execute("BEGIN")
        yield reader
    except apsw.Error as error:
        raise _unreadable(path, error) from None
    finally:
        reader.close()


def _unreadable(path: Path, error: apsw.Error) -> StoreError:
    return StoreError(f"{path} cannot be read ({error}): nothing was changed.")


def refuse_foreign(path: Path, held: HomeFile) -> None:
    """StoreForeign or StoreNewer if this release could not open the file."""
    location.check_header(path, application_id=held.application_id, version=len(held.migrations))


def content(reader: apsw.Connection) -> Content:
    """The versions and the number of rows of every table."""
    tables = reader.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        " ORDER BY name"
    ).fetchall()
    rows = {
        str(table): int(reader.execute(f'SELECT count(*) FROM "{table}"').get)  # noqa: S608 (of the schema)
        for (table,) in tables
    }
    return Content(int(reader.pragma("user_version")), last_migration(reader), rows)


def is_sound(path: Path, held: HomeFile) -> bool:
    """Whether a file of a home can go on being used: it is there, ours, and whole."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    try:
        refuse_foreign(path, held)
        with reading(path) as reader:
            return bool(reader.pragma("quick_check") == "ok" and last_migration(reader))
    except StoreError:
        return False
