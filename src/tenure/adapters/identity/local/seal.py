"""The sealing key: 32 random bytes in a file beside the database, readable by its owner alone.

Whoever has only the database has no private key; a backup of it is as harmless.  Lost, it takes the
signing keys with it, and nothing else.
"""

import os
import secrets
from pathlib import Path

from tenure.core.errors import StoreError, StoreUnsafe

KEY_BYTES = 32


def key_path(database: Path | str) -> Path:
    """Where the sealing key of this database is."""
    return Path(f"{database}.key")


def read_key(path: Path) -> bytes:
    """The key; StoreError says what is the matter with its file."""
    try:
        mode = path.stat().st_mode
        key = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read ({error.strerror}), and without it no signing key opens."
            " Put the file back."
        ) from None
    if mode & 0o077:
        raise StoreUnsafe(f"{path} can be read by others: run chmod 600 on it.")
    if len(key) != KEY_BYTES:
        raise StoreError(f"{path} is no sealing key: it has {len(key)} bytes. Put the file back.")
    return key


def make_key(path: Path) -> bytes:
    """The key; made if it is not there, and on the disk before anything is sealed with it."""
    try:
        if not path.exists():
            _write(path)
    except OSError as error:
        raise StoreError(f"{path} cannot be made ({error.strerror}).") from None
    return read_key(path)


def _write(path: Path) -> None:
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)  # what a crash left
    made = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(made, secrets.token_bytes(KEY_BYTES))
        os.fsync(made)
    finally:
        os.close(made)
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
