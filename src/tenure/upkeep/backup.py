"""A backup: a directory with one consistent copy of each file of a home, and a manifest.

The store is copied first: what it knows is then in the providers' copies too, or was removed since.
Sealing keys and the token are left out; a restore makes new ones.  The directory has its name only
once everything in it is on disk.
"""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tenure.core.errors import Invalid, StoreError
from tenure.home.atomic_file import flush_folder, make_whole
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import TermsFile
from tenure.ports.epoch import Memo
from tenure.sqlite.copy import copy_now
from tenure.upkeep.homes import (
    STORE,
    HomeFile,
    content,
    is_there,
    reading,
    refuse_foreign,
    store_elsewhere,
)

MANIFEST = "manifest.json"
FORMAT = 1
CHUNK = 1 << 20

Told = Callable[[str], None]
"""Hears of progress, a line at a time."""


class BackupFile(NamedTuple):
    """One file of a backup, as the manifest tells of it."""

    size: int
    sha256: str
    version: int
    reached: int
    rows: dict[str, int]


class Manifest(NamedTuple):
    """What a backup holds."""

    tenure: str
    made_at: float
    plane: str
    epoch: int
    audit_position: int
    audit_head: str
    open_operations: int
    files: dict[str, BackupFile]
    store: str = ""
    """Where the store is, if it is no file and so not in the backup."""
    home: str = ""
    """The name by which such a store knows its home."""


def back_up(
    home: Path, target: Path, files: Sequence[HomeFile], *, release: str, now: float, told: Told
) -> Manifest:
    """Write a backup of this home to `target`, which must not exist; a plane may run meanwhile."""
    if not is_there(home):
        raise Invalid(f"{home} holds no plane: there is no {STORE} in it. Nothing was written")
    if elsewhere := store_elsewhere(home):
        files = [held for held in files if held.name != STORE]  # one that was left there is no more
        told(f"the store is not in this backup: it is {elsewhere}. Copy it first, by pg_dump")
    if target.exists() or target.is_symlink():
        raise Invalid(f"{target} exists: it was left as it is. Name a new directory")
    partial = target.with_name(f"{target.name}.partial")
    try:
        if partial.exists():
            shutil.rmtree(partial)  # what an interrupted backup left
        partial.mkdir(mode=0o700, parents=True)
        manifest = _write(home, partial, files, release=release, now=now, told=told)
        partial.rename(target)
        flush_folder(target.absolute().parent)
    except OSError as error:
        raise StoreError(
            f"no backup was made at {target} ({error.strerror or error}): the home is as it was"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _write(
    home: Path, partial: Path, files: Sequence[HomeFile], *, release: str, now: float, told: Told
) -> Manifest:
    copied: dict[str, BackupFile] = {}
    for held in files:
        source = home / held.name
        if not source.exists():
            continue
        refuse_foreign(source, held)
        copy_now(source, partial / held.name)
        copied[held.name] = one = _seal(partial / held.name)
        told(f"{held.name}: {one.size / (1 << 20):.1f} MiB, {sum(one.rows.values())} rows")
    memo, terms = EpochFile(home).read() or Memo(), TermsFile(home).read()
    if terms is not None and terms.store:
        manifest = Manifest(
            release,
            now,
            "",
            memo.epoch,
            memo.position,
            memo.head,
            0,
            copied,
            store=terms.store,
            home=terms.home,
        )
    else:
        manifest = _with_store(partial, copied, memo, release=release, now=now)
    _remove_leftovers(partial, copied)
    make_whole(partial / MANIFEST, _text(manifest).encode())
    return manifest


def _with_store(
    partial: Path, copied: dict[str, BackupFile], memo: Memo, *, release: str, now: float
) -> Manifest:
    """What the copy of the store says."""
    with reading(partial / STORE) as store:
        plane, epoch = _plane(store)
        audit = (
            store.execute(
                "SELECT position, hash FROM audit ORDER BY position DESC LIMIT 1"
            ).fetchone()
            if "audit" in copied[STORE].rows
            else None
        )
        still_open = store.execute("SELECT count(*) FROM operation WHERE ended_at IS NULL").get
    position, head = audit or (0, "")
    return Manifest(release, now, plane, max(epoch, memo.epoch), position, head, still_open, copied)


def _remove_leftovers(partial: Path, copied: dict[str, BackupFile]) -> None:
    """Reading a copy makes files beside it, which say nothing."""
    for path in partial.iterdir():
        if path.name not in copied:
            path.unlink()


def _plane(store: apsw.Connection) -> tuple[str, int]:
    """Whose store it is, and its epoch if it knows of one."""
    columns = {row[1] for row in store.execute("PRAGMA table_info(plane)")}
    epoch = "epoch" if "epoch" in columns else "NULL"
    row = store.execute(f"SELECT name, {epoch} FROM plane WHERE one = 'this'").fetchone()  # noqa: S608 (two words)
    return (str(row[0]), int(row[1] or 1)) if row else ("", 1)


def _seal(path: Path) -> BackupFile:
    """Flush one copy, for its owner alone, and say what is in it."""
    path.chmod(0o600)
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
    with reading(path) as reader:
        found = content(reader)
    return BackupFile(path.stat().st_size, digest(path), *found)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    summed = sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            summed.update(chunk)
    return summed.hexdigest()


def _text(manifest: Manifest) -> str:
    at = datetime.fromtimestamp(manifest.made_at, UTC).isoformat(timespec="seconds")
    said = {"format": FORMAT, **manifest._asdict(), "made": at}
    if not manifest.store:
        del said["store"], said["home"]
    said["files"] = {name: one._asdict() for name, one in manifest.files.items()}
    return json.dumps(said, indent=2) + "\n"


# --- reading one ---------------------------------------------------------------------------------


def read(backup: Path, files: Sequence[HomeFile], *, told: Told) -> Manifest:
    """The manifest of a backup, once every file is found to be what it says; else Invalid."""
    try:
        said: dict[str, Any] = json.loads((backup / MANIFEST).read_bytes())
        number = said.pop("format")
        said.pop("made")
        copied = {str(name): BackupFile(**one) for name, one in said.pop("files").items()}
        manifest = Manifest(files=copied, **said)
    except FileNotFoundError:
        raise Invalid(f"{backup} is no backup: there is no {MANIFEST} in it") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Invalid(f"{backup / MANIFEST} is not what Tenure wrote ({error})") from None
    if number != FORMAT:
        raise Invalid(f"{backup} has format {number}; this release reads {FORMAT}")
    by_name = {held.name: held for held in files}
    if (STORE in copied) == bool(manifest.store) or not copied.keys() <= by_name.keys():
        raise Invalid(f"{backup / MANIFEST} names other files than a home holds")
    for name, one in copied.items():
        path = backup / name
        if not path.is_file() or path.is_symlink():
            raise Invalid(f"{path} is missing: this backup is not whole")
        if path.stat().st_size != one.size or digest(path) != one.sha256:
            raise Invalid(f"{path} is not what was backed up: its SHA-256 differs")
        refuse_foreign(path, by_name[name])
        told(f"{name}: as it was written")
    return manifest
