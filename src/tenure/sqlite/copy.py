"""A consistent copy of a file while it is being written.

The copy is made under another name, checked, flushed, and only then given its own: a name that is
there is a copy that opens.
"""

import asyncio
import os
from pathlib import Path

import apsw

from tenure.core.errors import StoreError
from tenure.home.atomic_file import flush_folder

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
