"""Makes and reads backups: a directory with a consistent copy of each file, and a manifest.

The store is copied first, so every resource that it records is in the providers' copies too, unless
it was removed since.  Sealing keys and the token are left out; a restore creates new ones.  The
directory gets its name only after everything in it is on the disk.
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

from tenure.atomic_file import create_atomically, flush_folder
from tenure.core.errors import Invalid, StoreError
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import SharedSettingsFile
from tenure.ports.epoch import Memo
from tenure.sqlite.copy import copy_file_blocking
from tenure.upkeep.homes import (
    STORE,
    HomeFile,
    content,
    has_plane,
    reading,
    refuse_foreign,
    store_elsewhere,
)

MANIFEST = "manifest.json"
FORMAT = 1
CHUNK = 1 << 20

Report = Callable[[str], None]
"""Called with each line of progress."""


class BackupFile(NamedTuple):
    """One file of a backup, as the manifest describes it."""

    size: int
    sha256: str
    version: int
    reached: int
    rows: dict[str, int]


class Manifest(NamedTuple):
    """The content of a backup."""

    tenure: str
    made_at: float
    plane: str
    epoch: int
    audit_position: int
    audit_head: str
    open_operations: int
    files: dict[str, BackupFile]
    store: str = ""
    """The address of a PostgreSQL store, which is not in the backup; empty for a file."""
    home: str = ""
    """The home's name in the plane row of such a store."""


def back_up(
    home: Path, target: Path, files: Sequence[HomeFile], *, release: str, now: float, report: Report
) -> Manifest:
    """Write a backup of this home to `target`, which must not exist; a plane may run meanwhile."""
    if not has_plane(home):
        raise Invalid(f"{home} has no plane: there is no {STORE} in it. Nothing was written")
    if elsewhere := store_elsewhere(home):
        files = [file for file in files if file.name != STORE]  # an old file is not the store
        report(f"the store is not in this backup: it is {elsewhere}. Copy it first, by pg_dump")
    if target.exists() or target.is_symlink():
        raise Invalid(f"{target} exists: it was not changed. Name a new directory")
    partial = target.with_name(f"{target.name}.partial")
    try:
        if partial.exists():
            shutil.rmtree(partial)  # left by an interrupted backup
        partial.mkdir(mode=0o700, parents=True)
        manifest = _write(home, partial, files, release=release, now=now, report=report)
        partial.rename(target)
        flush_folder(target.absolute().parent)
    except OSError as error:
        raise StoreError(
            f"no backup was made at {target} ({error.strerror or error}): the home was not changed"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return manifest


def _write(
    home: Path,
    partial: Path,
    files: Sequence[HomeFile],
    *,
    release: str,
    now: float,
    report: Report,
) -> Manifest:
    backup_files: dict[str, BackupFile] = {}
    for file in files:
        source = home / file.name
        if not source.exists():
            continue
        refuse_foreign(source, file)
        copy_file_blocking(source, partial / file.name)
        backup_files[file.name] = one = _describe_copy(partial / file.name)
        report(f"{file.name}: {one.size / (1 << 20):.1f} MiB, {sum(one.rows.values())} rows")
    memo, shared = EpochFile(home).read() or Memo(), SharedSettingsFile(home).read()
    if shared is not None and shared.store:
        manifest = Manifest(
            release,
            now,
            "",
            memo.epoch,
            memo.position,
            memo.head,
            0,
            backup_files,
            store=shared.store,
            home=shared.home,
        )
    else:
        manifest = _manifest_with_store(partial, backup_files, memo, release=release, now=now)
    _remove_leftovers(partial, backup_files)
    create_atomically(partial / MANIFEST, _encode(manifest).encode())
    return manifest


def _manifest_with_store(
    partial: Path, backup_files: dict[str, BackupFile], memo: Memo, *, release: str, now: float
) -> Manifest:
    """The manifest of a backup that contains the store, read from its copy."""
    with reading(partial / STORE) as store:
        plane, epoch = _plane(store)
        audit = (
            store.execute(
                "SELECT position, hash FROM audit ORDER BY position DESC LIMIT 1"
            ).fetchone()
            if "audit" in backup_files[STORE].rows
            else None
        )
        still_open = store.execute("SELECT count(*) FROM operation WHERE ended_at IS NULL").get
    position, head = audit or (0, "")
    return Manifest(
        release, now, plane, max(epoch, memo.epoch), position, head, still_open, backup_files
    )


def _remove_leftovers(partial: Path, backup_files: dict[str, BackupFile]) -> None:
    """Delete the empty -wal and -shm files that reading the copies has created."""
    for path in partial.iterdir():
        if path.name not in backup_files:
            path.unlink()


def _plane(store: apsw.Connection) -> tuple[str, int]:
    """The plane's name and epoch in the store; epoch 1 if the store has none."""
    columns = {row[1] for row in store.execute("PRAGMA table_info(plane)")}
    epoch = "epoch" if "epoch" in columns else "NULL"
    row = store.execute(f"SELECT name, {epoch} FROM plane WHERE one = 'this'").fetchone()  # noqa: S608 (two words)
    return (str(row[0]), int(row[1] or 1)) if row else ("", 1)


def _describe_copy(path: Path) -> BackupFile:
    """Flush one copy with mode 0600 and describe its content."""
    path.chmod(0o600)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    with reading(path) as reader:
        found = content(reader)
    return BackupFile(path.stat().st_size, digest(path), *found)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    hasher = sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def _encode(manifest: Manifest) -> str:
    at = datetime.fromtimestamp(manifest.made_at, UTC).isoformat(timespec="seconds")
    body = {"format": FORMAT, **manifest._asdict(), "made": at}
    if not manifest.store:
        del body["store"], body["home"]
    body["files"] = {name: one._asdict() for name, one in manifest.files.items()}
    return json.dumps(body, indent=2) + "\n"


# --- reading one ---------------------------------------------------------------------------------


def read(backup: Path, files: Sequence[HomeFile], *, report: Report) -> Manifest:
    """The manifest of a backup after checking every file against it; Invalid if one differs."""
    try:
        body: dict[str, Any] = json.loads((backup / MANIFEST).read_bytes())
        number = body.pop("format")
        body.pop("made")
        backup_files = {str(name): BackupFile(**one) for name, one in body.pop("files").items()}
        manifest = Manifest(files=backup_files, **body)
    except FileNotFoundError:
        raise Invalid(f"{backup} is not a backup: there is no {MANIFEST} in it") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Invalid(f"{backup / MANIFEST} is not a valid manifest ({error})") from None
    if number != FORMAT:
        raise Invalid(f"{backup} has format {number}; this release reads {FORMAT}")
    by_name = {file.name: file for file in files}
    if (STORE in backup_files) == bool(manifest.store) or not backup_files.keys() <= by_name.keys():
        raise Invalid(f"{backup / MANIFEST} lists other files than a home has")
    for name, one in backup_files.items():
        path = backup / name
        if not path.is_file() or path.is_symlink():
            raise Invalid(f"{path} is missing: this backup is incomplete")
        if path.stat().st_size != one.size or digest(path) != one.sha256:
            raise Invalid(f"{path} has changed since the backup: its SHA-256 differs")
        refuse_foreign(path, by_name[name])
        report(f"backup {backup.name}: {name} matches its manifest")
    return manifest
