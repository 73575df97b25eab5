"""Small private files that are written atomically: to a temporary file first, which is flushed.

If two processes create a file, the first one wins.  If two replace it, the last one wins.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tenure.core.errors import StoreError


def create_atomically(path: Path, content: bytes) -> None:
    """Create the file with mode 0600 unless it exists; it is on the disk when this returns.

    If several processes create it, the first one's content stays, and the others must read it.
    """
    with _temporary_file(path, content) as part, suppress(FileExistsError):
        os.link(part, path)


def replace_atomically(path: Path, text: str) -> None:
    """Replace or create the file with mode 0600; after a StoreError the old content stays."""
    try:
        with _temporary_file(path, text.encode()) as part:
            part.replace(path)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}): its old content stays."
            " Free disk space, or make the folder writable."
        ) from None


@contextmanager
def _temporary_file(path: Path, content: bytes) -> Iterator[Path]:
    """A flushed temporary file with this content; the block links or renames it to `path`."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # left by a crash
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(descriptor)
        yield part
    finally:
        part.unlink(missing_ok=True)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Flush the directory entries of the folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
