"""The files of a home: their owners and content, read without changing them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.core.errors import StoreError
from tenure.home.shared_settings import SharedSettingsFile
from tenure.sqlite import location
from tenure.sqlite.migrations import Migration, last_migration

STORE = "tenure.db"
ENDS = ("", "-wal", "-shm", "-journal")
"""Suffixes of the files that belong to one SQLite database."""


class HomeFile(NamedTuple):
    """One database file of a home, with its application id and migrations in this release."""

    name: str
    application_id: int
    migrations: list[Migration]
    renew: Callable[[Path], None] = lambda _: None
    """Invalidates, in the file of a restored home, rows that must not be valid again."""


class Content(NamedTuple):
    """Versions and row counts of one file."""

    version: int
    """The last migration that older code cannot work with (`user_version`)."""
    last_migration: int
    rows: dict[str, int]
    """Rows of every table."""


def has_plane(home: Path) -> bool:
    """Whether a plane was started in this home, wherever its store is."""
    return bool(store_elsewhere(home)) or (home / STORE).is_file()


def store_elsewhere(home: Path) -> str:
    """The address of a store outside the home, without password; empty if it is in the home."""
    shared = SharedSettingsFile(home).read()
    return shared.store if shared is not None else ""


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


def refuse_foreign(path: Path, file: HomeFile) -> None:
    """Raise StoreForeign or StoreNewer if this release cannot open the file."""
    location.check_header(path, application_id=file.application_id, version=len(file.migrations))


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


def is_sound(path: Path, file: HomeFile) -> bool:
    """Whether a file of a home is usable: it exists, belongs to Tenure, and is not corrupt."""
    if not path.exists() or path.stat().st_size == 0:
        return False
    try:
        refuse_foreign(path, file)
        with reading(path) as reader:
            return bool(reader.pragma("quick_check") == "ok" and last_migration(reader))
    except StoreError:
        return False
