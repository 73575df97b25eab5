"""A consistent copy of a file while it is being written.

The copy is made under another name, checked, flushed, and only then given its own: a name that is
there is a copy that opens.
"""

import asyncio
import os
from pathlib import Path

import apsw

from tenure.core.errors import StoreError

STEP_PAGES = 1_000


async def copy_file(source: Path, target: Path) -> None:
    """Write what `source` holds now to `target`, which must not exist; the loop goes on."""
    await asyncio.to_thread(copy_now, source, target)


def copy_now(source: Path, target: Path) -> None:
    """The same for whoever has no loop."""
    if target.exists():
        raise StoreError(
            f"{target} exists: it was left as it is and no copy was made. Name a new file."
        )
    partial = target.with_name(target.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        _copy_pages(source, partial)
        # A link, unlike a rename, does not replace what someone else put there meanwhile.
        os.link(partial, target)
        flush_folder(target.parent)
    except (apsw.Error, OSError) as error:
        raise StoreError(
            f"No copy was made at {target} ({error}); the store itself goes on."
        ) from None
    finally:
        for end in ("", "-journal", "-wal", "-shm"):
            Path(f"{partial}{end}").unlink(missing_ok=True)


def _copy_pages(source: Path, partial: Path) -> None:
    """Hold one snapshot for the whole copy, or every commit would start it anew."""
    reader = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
    writer = apsw.Connection(str(partial))
    try:
        reader.execute("BEGIN")
        reader.pragma("schema_version")  # a BEGIN takes its snapshot with the first read
        with writer.backup("main", reader, "main") as backup:
            while not backup.done:
                backup.step(STEP_PAGES)
        found = writer.pragma("integrity_check")
        if found != "ok":
            raise StoreError(f"The copy is not sound ({found}); it was thrown away.")
    finally:
        reader.close()
        writer.close()


def flush_folder(folder: Path) -> None:
    """Have on the disk which names are in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_whole(path: Path, text: str) -> None:
    """Write a private file, beside its place first: it says the one or the other, on disk."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        opened = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be written ({error.strerror}): what it said before stands."
            " Make room, or make the folder writable."
        ) from None
