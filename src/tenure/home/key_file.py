"""Files with a secret key: 32 random bytes, readable only by their owner."""

import secrets
from pathlib import Path

from tenure.atomic_file import create_atomically
from tenure.core.errors import StoreError, StoreUnsafe

KEY_BYTES = 32


def read_key(path: Path) -> bytes:
    """Read the key; StoreError or StoreUnsafe names the problem of its file."""
    try:
        mode = path.stat().st_mode
        key = path.read_bytes()
    except OSError as error:
        raise StoreError(
            f"{path} cannot be read ({error.strerror}), and without it no sealed key or secret"
            " opens. Put the file back."
        ) from None
    if mode & 0o077:
        raise StoreUnsafe(f"{path} can be read by others: run chmod 600 on it.")
    if len(key) != KEY_BYTES:
        raise StoreError(
            f"{path} is not a sealing key: it has {len(key)} bytes. Put the file back."
        )
    return key


def make_key(path: Path) -> bytes:
    """Return the key; it is created, and flushed to the disk, if the file does not exist."""
    try:
        if not path.exists():
            create_atomically(path, secrets.token_bytes(KEY_BYTES))
    except OSError as error:
        raise StoreError(f"{path} cannot be created ({error.strerror}).") from None
    return read_key(path)
