"""Small private files, whole or not at all: written and flushed beside their place first.

Of two who *make* a file the first one's stays; who *replaces* it has the last word.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tenure.core.errors import StoreError


def make_whole(path: Path, content: bytes) -> None:
    """Put this there for its owner alone, unless something is; on the disk when this returns.

    Of several who make it at once the first one's stays, and the others must read it.
    """
    with _beside(path, content) as part, suppress(FileExistsError):
        os.link(part, path)


def replace_whole(path: Path, text: str) -> None:
    """Put this there for its owner alone, whatever is; StoreError, and that stays, if it cannot."""
    try:
        with _beside(path, text.encode()) as part:
            part.replace(path)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}): what it said before stands."
            " Make room, or make the folder writable."
        ) from None


@contextmanager
def _beside(path: Path, content: bytes) -> Iterator[Path]:
    """A file with this in it, flushed, that is given its name in the block."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)  # what a crash left
    try:
        made = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(made, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(made)
        yield part
    finally:
        part.unlink(missing_ok=True)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Have on the disk which names are in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
