"""Opens a file so that what is committed to it stays, or refuses and touches nothing.

The checks come in the order of what they cost the file: the library and the place first, then the
file's own header, then the lock; only a file that is ours, not newer and nobody else's is opened.
"""

import os
from pathlib import Path
from weakref import WeakSet

import apsw

from tenure.core.errors import StoreError, StoreLocked, StoreUnsafe
from tenure.sqlite import location
from tenure.sqlite.migrations import Migration, migrate

APPLICATION_ID = int.from_bytes(b"Tnur", "big")
"""Stands in the header of every store file, so that `file` and we know it for ours."""
SYNCHRONOUS_FULL = 2
PAGE_BYTES = 8_192
"""Of a new file: with 4,096 a commit under load takes twice as many writes for the same bytes."""
WRITER_KIBIBYTES = 6_144
READER_KIBIBYTES = 2_048
"""Pages kept in memory: those of what is open now, since ids are ordered by time."""
STATEMENTS_KEPT = 64
"""The library looks through half of them at every use."""


class OpenFile:
    """A file that is open and ours: one writer, any number of readers, and the lock."""

    def __init__(self, path: Path, writer: apsw.Connection, lock: location.Lock) -> None:
        self.path = path
        self.writer = writer
        self._lock = lock
        self._readers: list[apsw.Connection] = []

    def reader(self) -> apsw.Connection:
        """A connection that can only read, and sees what is committed."""
        reader = connect(self.path, apsw.SQLITE_OPEN_READONLY)
        reader.pragma("query_only", 1)
        reader.pragma("cache_size", -READER_KIBIBYTES)
        self._readers.append(reader)
        return reader

    def room(self) -> int:
        """Free bytes on the file's disk; none on a file system that has become read-only."""
        disk = os.statvfs(self.path.parent)
        return 0 if disk.f_flag & os.ST_RDONLY else disk.f_bavail * disk.f_frsize

    def is_read_only(self) -> bool:
        """Whether the file system is read-only, as Linux makes one after an error of its disk."""
        return bool(os.statvfs(self.path.parent).f_flag & os.ST_RDONLY)

    def close(self) -> None:
        """Close the readers, then the writer (it moves the log to the main file), then the lock."""
        for reader in self._readers:
            reader.close()
        self.writer.close()
        self._lock.release()
        _HELD.discard(self)


def open_file(
    path: Path | str,
    migrations: list[Migration],
    *,
    application_id: int = APPLICATION_ID,
    mounts: Path = location.MOUNTS,
) -> OpenFile:
    """Open the file, make it if it is not there, and bring it to the last migration."""
    path = Path(os.path.realpath(path))
    version = len(migrations)
    check_library(apsw.sqlite_lib_version())
    location.check_place(path, mounts=mounts)
    _refuse_twice(path)
    location.check_header(path, application_id=application_id, version=version)
    lock = location.Lock.take(path)
    try:
        # Whoever held the lock a moment ago may have made or upgraded the file.
        location.check_header(path, application_id=application_id, version=version)
        writer = _open(path, migrations, application_id)
    except BaseException:
        lock.release()
        raise
    held = OpenFile(path, writer, lock)
    _HELD.add(held)
    return held


_HELD: WeakSet[OpenFile] = WeakSet()
"""The files that this process has open."""


def _refuse_twice(path: Path) -> None:
    """Refuse a file that this very process has open, before anything opens and closes it.

    To close any other descriptor of a file drops the process's own POSIX locks on it, those of
    SQLite too; another program could then take the log away from under a running store.
    """
    if path.exists() and any(held.path.exists() and path.samefile(held.path) for held in _HELD):
        raise StoreLocked(
            f"{path} is in use by process {os.getpid()}, which is this one: nothing was touched."
            " Use the store that is there."
        )


def check_library(version: str) -> None:
    """Refuse the SQLite releases whose WAL can be reset under a reader and lose commits."""
    number = tuple(int(part) for part in version.split("."))
    if (3, 7, 0) <= number <= (3, 51, 2):
        raise StoreUnsafe(
            f"SQLite {version} can corrupt a file in WAL mode: nothing was touched."
            " Install an apsw that carries SQLite 3.51.3 or later."
        )


def _open(path: Path, migrations: list[Migration], application_id: int) -> apsw.Connection:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        writer = connect(path, apsw.SQLITE_OPEN_READWRITE)
    except (OSError, apsw.Error) as error:
        raise _cannot_open(path, error) from None
    try:
        # Until it is known to be ours, closing it again must not move its log into the main file.
        writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        version = writer.pragma("user_version")
        if version == 0 and path.stat().st_size == 0:
            writer.pragma("page_size", PAGE_BYTES)
            # Before WAL, so that it goes straight to the main file and the next start knows it for
            # ours.
            writer.pragma("application_id", application_id)
        header = location.FileHeader(writer.pragma("application_id"), version)
        location.check_owner(path, header, application_id=application_id, version=len(migrations))
        configure(writer)
        writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        if migrate(writer, migrations):
            writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except (OSError, apsw.Error) as error:
        writer.close()
        raise _cannot_open(path, error) from None
    except BaseException:
        writer.close()
        raise
    return writer


def _cannot_open(path: Path, error: OSError | apsw.Error) -> StoreError:
    why = error.strerror if isinstance(error, OSError) else error
    return StoreError(
        f"{path} cannot be opened ({why}): no record was changed."
        " Restore a copy, or name another file."
    )


def connect(path: Path, flags: int) -> apsw.Connection:
    """A bare connection whose statements keep their plans.

    Without the planner's stability guarantee a new value for a parameter may cost a new plan: three
    times the read.
    """
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=STATEMENTS_KEPT)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


def configure(writer: apsw.Connection) -> None:
    """Set what durability rests on, and believe only what SQLite says it has set."""
    writer.set_busy_timeout(0)
    mode = writer.pragma("journal_mode", "wal")
    if mode != "wal":
        raise StoreUnsafe(
            f"SQLite keeps journal mode {mode!r} instead of WAL: no record was changed."
        )
    writer.pragma("synchronous", "full")
    level = writer.pragma("synchronous")
    if level != SYNCHRONOUS_FULL:
        raise StoreUnsafe(
            f"SQLite keeps synchronous={level} instead of FULL: no record was changed."
        )
    writer.pragma("cache_size", -WRITER_KIBIBYTES)
    writer.wal_autocheckpoint(0)
    writer.pragma("temp_store", "memory")
    writer.pragma("trusted_schema", 0)
