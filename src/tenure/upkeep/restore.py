"""Restores a backup into a home; the plane is paused until an operator confirms it.

The epoch is raised first, outside the store: from then on every token issued before is void, even
if this process is killed.  The providers' own files stay if they exist and are not corrupt, because
they are newer than the backup: resources that were revoked or deleted since do not come back.
Replaced files are moved to a directory `aside-EPOCH`.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.atomic_file import flush_folder
from tenure.core.errors import StoreError
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import SharedSettings, SharedSettingsFile
from tenure.ports.epoch import Memo
from tenure.sqlite.copy import copy_file_blocking
from tenure.sqlite.durable_file import open_file
from tenure.sqlite.location import Lock
from tenure.upkeep import backup
from tenure.upkeep.backup import Manifest, Report
from tenure.upkeep.homes import ENDS, STORE, HomeFile, is_sound, reading

NEW = ".restoring"
REMOVED_FILES = ("token", "address")
"""Files that belong to the plane before the restore."""


class RestoreReport(NamedTuple):
    """The result of a restore."""

    epoch: int
    aside: Path
    """The directory with the replaced files."""
    replaced: list[str]
    stayed: list[str]
    """Providers' files that were kept, because they are newer than the backup."""
    store: str = ""
    """The address of a PostgreSQL store, which was not restored; empty for a file."""


def restore(
    source: Path, home: Path, files: Sequence[HomeFile], *, report: Report
) -> RestoreReport:
    """Verify a backup and put it into this home; refused while a plane runs there.

    After a crash at any point it can be repeated; until then no plane starts in the home.
    """
    manifest = backup.read(source, files, report=report)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with lock_home(home, files):
        if home.stat().st_mode & 0o077:
            home.chmod(0o700)
            report(f"{home}: mode set to 0700")
        epoch_file = EpochFile(home)
        epoch = _last_epoch(home, epoch_file, manifest) + 1
        epoch_file.write(Memo(epoch, f"restored from {source.name}", restoring=str(source)))
        report(f"epoch {epoch} begins: tokens issued before are void")
        aside = home / f"aside-{epoch}"
        aside.mkdir(mode=0o700)
        replaced, stayed = [], []
        for file in files:
            path = home / file.name
            if file.name == STORE and manifest.store:
                continue  # the store is not in the home
            if file.name != STORE and is_sound(path, file):
                stayed.append(file.name)
                copy_file_blocking(path, aside / file.name)
            elif file.name in manifest.files:
                replaced.append(file.name)
                _replace(source / file.name, path, aside, file)
            if path.exists():
                file.renew(path)
                report(f"{file.name}: {'stays' if file.name in stayed else 'restored'}")
        _update_shared_settings(SharedSettingsFile(home), manifest)
        for name in REMOVED_FILES:
            _move(home / name, aside)
        flush_folder(aside)
        flush_folder(home)
        why = f"restored from {source.name}, a backup of epoch {manifest.epoch}"
        epoch_file.write(Memo(epoch, why))
    return RestoreReport(epoch, aside, replaced, stayed, manifest.store)


def hold(home: Path, files: Sequence[HomeFile]) -> int:
    """Start and return a new epoch, in a home whose store was restored by other means."""
    with lock_home(home, files):
        epoch_file = EpochFile(home)
        epoch = _last_epoch(home, epoch_file, None) + 1
        why = "its store was restored by other means"
        epoch_file.write(Memo(epoch, why, restoring=why))
        for file in files:
            if (home / file.name).exists():
                file.renew(home / file.name)
        (home / "token").unlink(missing_ok=True)
        epoch_file.write(Memo(epoch, why))
    return epoch


def _update_shared_settings(shared_file: SharedSettingsFile, manifest: Manifest) -> None:
    """Set the store in the home's shared settings to the restored one."""
    shared = shared_file.read()
    if shared is None and manifest.store:
        shared_file.write(SharedSettings(manifest.home, manifest.store))
    elif shared is not None and shared.store and not manifest.store:
        shared_file.write(shared._replace(store=""))


@contextmanager
def lock_home(home: Path, files: Sequence[HomeFile]) -> Iterator[None]:
    """Lock the files of the home against every plane; StoreLocked if one runs."""
    with ExitStack() as stack:
        for file in files:
            stack.callback(Lock.take(home / file.name).release)
        yield


def _last_epoch(home: Path, epoch_file: EpochFile, manifest: Manifest | None) -> int:
    """The greatest epoch in the epoch file, the manifest and the store."""
    memo = epoch_file.read()
    epochs = [manifest.epoch if manifest else 1, memo.epoch if memo else 1]
    if (home / STORE).exists():
        try:
            with reading(home / STORE) as store:
                epochs.append(int(store.execute("SELECT max(epoch) FROM plane").get or 1))
        except StoreError:
            pass  # broken, or of a release without epochs
    return max(epochs)


def _replace(source: Path, path: Path, aside: Path, file: HomeFile) -> None:
    """Prepare the copy under a temporary name, move the old files aside, and rename the copy."""
    new = path.with_name(path.name + NEW)
    for end in (*ENDS, ".lock"):
        Path(f"{new}{end}").unlink(missing_ok=True)
    copy_file_blocking(source, new)
    new.chmod(0o600)
    _migrate_copy(new, file)
    for end in ENDS:
        _move(Path(f"{path}{end}"), aside)
    new.replace(path)
    Path(f"{new}.lock").unlink(missing_ok=True)
    flush_folder(path.parent)


def _migrate_copy(new: Path, file: HomeFile) -> None:
    """Migrate the copy to this release.  The next start writes the new epoch into it."""
    database = open_file(new, file.migrations, application_id=file.application_id)
    try:
        database.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        database.close()
    descriptor = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(path: Path, aside: Path) -> None:
    if path.exists():
        path.rename(aside / path.name)
