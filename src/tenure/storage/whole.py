"""Small private files, written whole or not at all."""

import os
from pathlib import Path

from tenure.storage.copy import flush_folder


def write_whole(path: Path, content: bytes) -> None:
    """Put this there for its owner alone; it is on the disk when this returns."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)  # what a crash left
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(made, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(made)
    new.replace(path)
    flush_folder(path.parent)
