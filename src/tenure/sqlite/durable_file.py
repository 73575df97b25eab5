"""Opens a file with durable commits, or refuses it and changes nothing.

Checks that do not touch the file come first: the SQLite library and the file system, then the
file's header, then the lock. SQLite opens the file only if it is a file of this application, has no
newer schema and is not in use by another process.
"""

import os
from pathlib import Path
from weakref import WeakSet

import apsw

from tenure.core.errors import StoreError, StoreLocked, StoreUnsafe
from tenure.sqlite import location
from tenure.sqlite.migrations import Migration, migrate

APPLICATION_ID = int.from_bytes(b"Tnur", "big")
"""The application id in the header of every store file, by which `file` and Tenure know it."""
SYNCHRONOUS_FULL = 2
PAGE_BYTES = 8_192
"""Page size of a new file; with 4,096 a commit under load takes twice as many writes."""
WRITER_KIBIBYTES = 6_144
READER_KIBIBYTES = 2_048
"""Page caches. Ids are ordered by time, so the pages of open operations are next to each other."""
CACHED_STATEMENTS_MAX = 64
"""Statements that a connection caches; apsw searches half of them at every use."""


class OpenFile:
    """An open file with one writer connection, any number of readers, and the lock."""

    def __init__(self, path: Path, writer: apsw.Connection, lock: location.Lock) -> None:
        self.path = path
        self.writer = writer
        self._lock = lock
        self._readers: list[apsw.Connection] = []

    def reader(self) -> apsw.Connection:
        """A read-only connection; it sees committed rows."""
        reader = connect(self.path, apsw.SQLITE_OPEN_READONLY)
        reader.pragma("query_only", 1)
        reader.pragma("cache_size", -READER_KIBIBYTES)
        self._readers.append(reader)
        return reader

    def free_bytes(self) -> int:
        """Free bytes on the file's disk; 0 on a file system that has become read-only."""
        disk = os.statvfs(self.path.parent)
        return 0 if disk.f_flag & os.ST_RDONLY else disk.f_bavail * disk.f_frsize

    def is_read_only(self) -> bool:
        """Whether the file system is read-only, as Linux makes one after an error of its disk."""
        return bool(os.statvfs(self.path.parent).f_flag & os.ST_RDONLY)

    def close(self) -> None:
        """Close the readers, then the writer (which checkpoints the WAL), then the lock."""
        for reader in self._readers:
            reader.close()
        self.writer.close()
        self._lock.release()
        _OPEN_FILES.discard(self)


def open_file(
    path: Path | str,
    migrations: list[Migration],
    *,
    application_id: int = APPLICATION_ID,
    mounts: Path = location.MOUNTS,
) -> OpenFile:
    """Open the file, create it if it does not exist, and apply all migrations."""
    path = Path(os.path.realpath(path))
    version = len(migrations)
    check_library(apsw.sqlite_lib_version())
    location.check_location(path, mounts=mounts)
    _refuse_second_open(path)
    location.check_header(path, application_id=application_id, version=version)
    lock = location.Lock.take(path)
    try:
        # The process that had the lock a moment ago may have created or upgraded the file.
        location.check_header(path, application_id=application_id, version=version)
        writer = _open(path, migrations, application_id)
    except BaseException:
        lock.release()
        raise
    file = OpenFile(path, writer, lock)
    _OPEN_FILES.add(file)
    return file


_OPEN_FILES: WeakSet[OpenFile] = WeakSet()
"""The files that this process has open."""


def _refuse_second_open(path: Path) -> None:
    """Refuse a file that this process already has open, before opening another descriptor of it.

    When a process closes any descriptor of a file, it loses its POSIX locks on that file, including
    SQLite's. Another program could then delete the WAL of a running store.
    """
    if path.exists() and any(
        file.path.exists() and path.samefile(file.path) for file in _OPEN_FILES
    ):
        raise StoreLocked(
            f"{path} is in use by process {os.getpid()}, which is this one: nothing was touched."
            " Use the plane that is already open."
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
        # Until the owner is checked, closing the file must not checkpoint its WAL.
        writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        version = writer.pragma("user_version")
        if version == 0 and path.stat().st_size == 0:
            writer.pragma("page_size", PAGE_BYTES)
            # Written before WAL mode, so that it is in the main file and the next start finds it.
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
    """A connection whose prepared statements keep their query plans.

    Without SQLite's query planner stability guarantee a new parameter value can cause a new plan,
    which costs three times the read.
    """
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=CACHED_STATEMENTS_MAX)
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


def configure(writer: apsw.Connection) -> None:
    """Set WAL and synchronous=FULL, and check that SQLite has set them."""
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
