"""Small private files that are made once, whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from tenure.storage.copy import flush_folder


def make_whole(path: Path, content: bytes) -> None:
    """Put this there for its owner alone, unless something is; on the disk when this returns.

    Of several who make it at once the first one's stays, and the others must read it.
    """
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)  # what a crash left
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(made, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(made)
    with suppress(FileExistsError):
        os.link(new, path)
    new.unlink()
    flush_folder(path.parent)
