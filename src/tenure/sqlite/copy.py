"""A consistent copy of a file while it is being written.

The copy is written under a temporary name, checked and flushed. Only then it gets its own name, so
that a file with that name is always a complete copy.
"""

import asyncio
import os
from pathlib import Path

import apsw

from tenure.atomic_file import flush_folder
from tenure.core.errors import StoreError

STEP_PAGES = 1_000


async def copy_file(source: Path, target: Path) -> None:
    """Copy `source` to `target`, which must not exist; the event loop is not blocked."""
    await asyncio.to_thread(copy_file_blocking, source, target)


def copy_file_blocking(source: Path, target: Path) -> None:
    """Copy `source` to `target` in this thread."""
    if target.exists():
        raise StoreError(
            f"{target} exists: it was left as it is and no copy was made. Name a new file."
        )
    partial = target.with_name(target.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        _copy_pages(source, partial)
        # A link, unlike a rename, does not replace a file that was created there meanwhile.
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
    """Copy under one snapshot; without it every commit would restart the copy."""
    reader = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
    writer = apsw.Connection(str(partial))
    try:
        reader.execute("BEGIN")
        reader.pragma("schema_version")  # a BEGIN takes its snapshot with the first read
        with writer.backup("main", reader, "main") as backup:
            while not backup.done:
                backup.step(STEP_PAGES)
        check = writer.pragma("integrity_check")
        if check != "ok":
            raise StoreError(f"The copy is not sound ({check}); it was deleted.")
    finally:
        reader.close()
        writer.close()
