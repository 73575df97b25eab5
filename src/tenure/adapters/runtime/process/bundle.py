"""Content digests of files and of whole bundles.

A bundle is hashed while it is copied, so the hash is of the copy that runs.  A file's digest is
cached while its inode, size and times stay the same.
"""

import errno
import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from tenure.core.errors import Invalid

ENTRIES_MAX = 4_096
BYTES_MAX = 67_108_864
FILE_BYTES_MAX = 1_073_741_824
PIECE_BYTES = 1_048_576
CACHED_MAX = 1_024

Mark = tuple[int, int, int, int, int]


class DigestCache:
    """Cached digests of files."""

    def __init__(self) -> None:
        self._cache: dict[str, tuple[Mark, str]] = {}

    def of(self, path: str) -> str:
        """The current digest of a file; OSError if it cannot be read or is not a regular file.

        Only regular files are read: a device has no end, and a pipe may never have data.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 (it is open already)
            is_now = os.fstat(file.fileno())
            if not stat.S_ISREG(is_now.st_mode):
                raise OSError(errno.EINVAL, "it is no plain file", path)
            if is_now.st_size > FILE_BYTES_MAX:
                raise OSError(errno.EFBIG, f"it has more than {FILE_BYTES_MAX} bytes", path)
            times = (is_now.st_mtime_ns, is_now.st_ctime_ns)
            mark = (is_now.st_dev, is_now.st_ino, is_now.st_size, *times)
            known = self._cache.get(path)
            if known is not None and known[0] == mark:
                return known[1]
            whole, size = hashlib.sha256(), 0
            for piece in _pieces(file, FILE_BYTES_MAX):
                whole.update(piece)
                size += len(piece)
            if size > FILE_BYTES_MAX:  # files of /proc report no size
                raise OSError(errno.EFBIG, f"it has more than {FILE_BYTES_MAX} bytes", path)
            digest = f"sha256:{whole.hexdigest()}"
        if len(self._cache) >= CACHED_MAX:
            self._cache.clear()
        self._cache[path] = (mark, digest)
        return digest


def read_bundle(source: Path, into: Path | None = None) -> str:
    """The digest of a directory, and optionally a copy; Invalid for devices and outside links.

    Names, permissions and bytes count, in the order of names; owners and times do not.
    """
    whole = hashlib.sha256()
    size = 0
    for number, path in enumerate(_walk(source, source.resolve())):
        is_now = path.lstat()
        mode = stat.S_IMODE(is_now.st_mode)
        name = os.fsencode(path.relative_to(source))
        target = into / path.relative_to(source) if into is not None else None
        if stat.S_ISDIR(is_now.st_mode):
            whole.update(b"dir %o %d %s\0" % (mode, len(name), name))
            if target is not None:
                target.mkdir(mode=0o700)
        elif stat.S_ISLNK(is_now.st_mode):
            link = os.fsencode(path.readlink())
            whole.update(b"link %d %s %d %s\0" % (len(name), name, len(link), link))
            if target is not None:
                target.symlink_to(os.fsdecode(link))
        else:
            data = _bytes(path, BYTES_MAX - size)
            size += len(data)
            whole.update(b"file %o %d %s %d\0" % (mode, len(name), name, len(data)))
            whole.update(data)
            if target is not None:
                target.write_bytes(data)
                target.chmod(mode & 0o777)
        if number >= ENTRIES_MAX:
            raise Invalid(f"the bundle {source} has more than {ENTRIES_MAX} entries")
    return f"sha256:{whole.hexdigest()}"


def _walk(directory: Path, top: Path) -> Iterator[Path]:
    """Everything below, parents first, by name; Invalid for devices and links that lead out."""
    for path in sorted(directory.iterdir()):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            if path.readlink().is_absolute() or not path.resolve().is_relative_to(top):
                raise Invalid(f"the link {path} leads out of its bundle")
        elif not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise Invalid(f"{path} is neither a file nor a directory")
        yield path
        if stat.S_ISDIR(mode):
            yield from _walk(path, top)


def _without_waiting(path: str, flags: int) -> int:
    """Open without blocking: the file may have been replaced by a pipe or a link meanwhile."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _pieces(file: io.FileIO, bytes_max: int) -> Iterator[bytes]:
    """The content of a file, up to the first piece that exceeds `bytes_max` bytes."""
    size = 0
    while size <= bytes_max and (piece := cast("bytes | None", file.read(PIECE_BYTES))) != b"":
        if piece is None:
            raise OSError(errno.EAGAIN, "it would block", file.name)
        size += len(piece)
        yield piece


def _bytes(path: Path, bytes_max: int) -> bytes:
    """The file's bytes; Invalid if there are more than `bytes_max`."""
    with open(path, "rb", buffering=0, opener=_without_waiting) as file:
        data = b"".join(_pieces(file, bytes_max))
    if len(data) > bytes_max:
        raise Invalid(f"a bundle has at most {BYTES_MAX} bytes; {path} is beyond that")
    return data
