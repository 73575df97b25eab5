"""The sealing key: 32 random bytes in a file next to the database, with mode 0600.

The database alone, or a backup of it, reveals no private key.  If the sealing key is lost, the
signing keys are lost, and nothing else.
"""

import secrets
from pathlib import Path

from tenure.atomic_file import create_atomically
from tenure.core.errors import StoreError, StoreUnsafe

KEY_BYTES = 32


def key_path(database: Path | str) -> Path:
    """The path of the sealing key of this database."""
    return Path(f"{database}.key")


def read_key(path: Path) -> bytes:
    """Read the key; StoreError names the problem of its file."""
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
    """The key; created if it does not exist, and flushed before anything is sealed with it."""
    try:
        if not path.exists():
            create_atomically(path, secrets.token_bytes(KEY_BYTES))
    except OSError as error:
        raise StoreError(f"{path} cannot be made ({error.strerror}).") from None
    return read_key(path)
