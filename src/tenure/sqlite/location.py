"""Checks a file before SQLite opens it: its file system, its application id, and its lock.

Nothing here writes to the file.  A refusal names the problem and says what to do.
"""

import fcntl
import os
from pathlib import Path
from typing import NamedTuple, Self

from tenure.core.errors import StoreError, StoreForeign, StoreLocked, StoreNewer, StoreUnsafe

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
MOUNTS = Path("/proc/self/mountinfo")
NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "drvfs", "gfs2", "glusterfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "prl_fs", "smb3", "smbfs", "vboxsf", "virtiofs",
})  # fmt: skip
"""File systems whose locks or flushes depend on another machine; every FUSE name counts too."""


MOVED_APPLICATION_ID = int.from_bytes(b"Tnmv", "big")
"""The application id of a file whose records were moved to another store."""
MOVED_NOTE_SUFFIX = ".moved"
"""Suffix of the file that names the other store."""


class FileHeader(NamedTuple):
    """The file's application id and schema version, from its first hundred bytes."""

    application_id: int
    version: int


def read_header(path: Path) -> FileHeader | None:
    """The header, or None if the file does not exist or is empty."""
    try:
        with path.open("rb") as file:
            start = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read ({error.strerror}): nothing was touched."
        ) from None
    if not start:
        return None
    if len(start) < HEADER_BYTES or not start.startswith(MAGIC):
        raise StoreForeign(
            f"{path} is not an SQLite file: nothing was touched."
            " Name another file, or move this one away."
        )
    return FileHeader(int.from_bytes(start[68:72], "big"), int.from_bytes(start[60:64], "big"))


def check_header(path: Path, *, application_id: int, version: int) -> None:
    """Refuse a file of another program, or of a newer version than this code knows."""
    header = read_header(path)
    if header is not None:
        check_owner(path, header, application_id=application_id, version=version)


def check_owner(path: Path, header: FileHeader, *, application_id: int, version: int) -> None:
    """Refuse as `check_header` does, for a header that was read before."""
    if header.application_id == MOVED_APPLICATION_ID:
        note = Path(f"{path}{MOVED_NOTE_SUFFIX}")
        new_place = note.read_text(encoding="utf-8").strip() if note.exists() else "another store"
        raise StoreForeign(
            f"{path} was moved to {new_place}: nothing was touched."
            " Name that place: tenure up --store URL."
        )
    if header.application_id != application_id:
        raise StoreForeign(
            f"{path} belongs to another program (application id {header.application_id:#010x}):"
            " nothing was touched. Name another file, or move this one away."
        )
    if header.version > version:
        raise StoreNewer(
            f"{path} was written by a newer Tenure (version {header.version}, this one knows"
            f" {version}): nothing was touched. Start the newer Tenure, or restore a copy made"
            " before the upgrade."
        )


def check_location(path: Path, *, mounts: Path = MOUNTS) -> None:
    """Refuse a folder that is missing, not writable, or on a network file system."""
    folder = path.parent
    if not folder.is_dir():
        raise StoreError(
            f"There is no folder {folder}: nothing was created. Create it, or name another."
        )
    if path.exists() and not path.is_file():
        raise StoreForeign(f"{path} is not a file: nothing was touched. Name another file.")
    kind = file_system(folder, mounts=mounts)
    if kind in NETWORK_FILE_SYSTEMS or kind.split(".")[0] in {"fuse", "fuseblk"}:
        raise StoreUnsafe(
            f"{folder} is on a network file system ({kind}), where a commit may not survive a"
            " crash: nothing was touched. Keep the store on a local disk."
        )
    read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
    if read_only or not _may_write(folder) or (path.exists() and not _may_write(path)):
        why = "the disk is read-only" if read_only else "permission denied"
        raise StoreUnsafe(
            f"{path} cannot be written ({why}): nothing was touched. Make it writable."
        )


def _may_write(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK, effective_ids=True)


def file_system(folder: Path, *, mounts: Path = MOUNTS) -> str:
    """The type of the folder's file system; "" if the system does not tell."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ""
    deepest, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        point = _unescape(fields[4])
        inside = point == "/" or folder == Path(point) or folder.is_relative_to(point)
        # Of two mounts on one point the later covers the earlier.
        if inside and len(point) >= len(deepest):
            deepest, kind = point, fields[fields.index("-") + 1]
    return kind


def _unescape(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


class Lock:
    """An exclusive lock on `<file>.lock`, until it is released or the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, path: Path) -> Self:
        """Take the lock without waiting; StoreLocked names the process that has it."""
        name = f"{path}.lock"
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnsafe(
                f"{name} cannot be created ({error.strerror}): {path} was not touched."
                " Make the folder writable."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreLocked(
                f"{path} is in use by process {holder}: nothing was touched."
                " Stop that process first.",
                holder=holder,
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(descriptor)
            raise StoreError(
                f"{name} cannot be written ({error.strerror}): {path} was not touched."
                " Make room on its disk."
            ) from None
        return cls(descriptor)

    def release(self) -> None:
        """Release the lock.  Its file stays: if it were deleted, two processes could lock it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
