"""A restore: the store of a backup is put into a home, and the plane is held until it is confirmed.

The epoch is raised before anything else, outside the store: from that instant every token that was
issued before is void, whatever becomes of this process.  The providers' own files are newer than
the backup wherever they are there and whole, so they stay: what was revoked or deleted since is not
brought back.  What is replaced is kept aside.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.core.errors import StoreError
from tenure.home.atomic_file import flush_folder
from tenure.home.epoch_file import EpochFile
from tenure.home.shared_settings import Terms, TermsFile
from tenure.ports.epoch import Memo
from tenure.sqlite.copy import copy_now
from tenure.sqlite.gate import open_file
from tenure.sqlite.location import Lock
from tenure.upkeep import backup
from tenure.upkeep.backup import Manifest, Told
from tenure.upkeep.homes import ENDS, STORE, HomeFile, is_sound, reading

NEW = ".restoring"
LEFT_BEHIND = ("token", "address")
"""What a home tells of a plane that is no more."""


class RestoreReport(NamedTuple):
    """What a restore has done."""

    epoch: int
    aside: Path
    """Where what was replaced is kept."""
    replaced: list[str]
    stayed: list[str]
    """Providers' files that are newer than the backup, and were left."""
    store: str = ""
    """Where the store is, if it is no file and so was not restored."""


def restore(source: Path, home: Path, files: Sequence[HomeFile], *, told: Told) -> RestoreReport:
    """Put a backup into this home; verified first, refused while a plane runs there.

    It can be repeated after a crash at any instant: a home in which it did not end does not start.
    """
    manifest = backup.read(source, files, told=told)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(home, files):
        if home.stat().st_mode & 0o077:
            home.chmod(0o700)
            told(f"{home}: for its owner alone from now on (0700)")
        keeper = EpochFile(home)
        epoch = _last_epoch(home, keeper, manifest) + 1
        keeper.write(Memo(epoch, f"restored from {source.name}", restoring=str(source)))
        told(f"epoch {epoch} begins: what was issued before is void")
        aside = home / f"aside-{epoch}"
        aside.mkdir(mode=0o700)
        replaced, stayed = [], []
        for held in files:
            path = home / held.name
            if held.name == STORE and manifest.store:
                continue  # it is no file of the home
            if held.name != STORE and is_sound(path, held):
                stayed.append(held.name)
                copy_now(path, aside / held.name)
            elif held.name in manifest.files:
                replaced.append(held.name)
                _replace(source / held.name, path, aside, held)
            if path.exists():
                held.renew(path)
                told(f"{held.name}: {'stays' if held.name in stayed else 'restored'}")
        _agree(TermsFile(home), manifest)
        for name in LEFT_BEHIND:
            _move(home / name, aside)
        flush_folder(aside)
        flush_folder(home)
        why = f"restored from {source.name}, a backup of epoch {manifest.epoch}"
        keeper.write(Memo(epoch, why))
    return RestoreReport(epoch, aside, replaced, stayed, manifest.store)


def hold(home: Path, files: Sequence[HomeFile]) -> int:
    """Begin a new epoch in a home whose store was put back by other means; the epoch."""
    with locked(home, files):
        keeper = EpochFile(home)
        epoch = _last_epoch(home, keeper, None) + 1
        why = "its store was put back by other means"
        keeper.write(Memo(epoch, why, restoring=why))
        for held in files:
            if (home / held.name).exists():
                held.renew(home / held.name)
        (home / "token").unlink(missing_ok=True)
        keeper.write(Memo(epoch, why))
    return epoch


def _agree(file: TermsFile, manifest: Manifest) -> None:
    """The home's terms say where the store is that was restored."""
    terms = file.read()
    if terms is None and manifest.store:
        file.write(Terms(manifest.home, manifest.store))
    elif terms is not None and terms.store and not manifest.store:
        file.write(terms._replace(store=""))


@contextmanager
def locked(home: Path, files: Sequence[HomeFile]) -> Iterator[None]:
    """Keep every plane out of the home; StoreLocked if one is there."""
    with ExitStack() as stack:
        for held in files:
            stack.callback(Lock.take(home / held.name).release)
        yield


def _last_epoch(home: Path, keeper: EpochFile, manifest: Manifest | None) -> int:
    """The greatest epoch that anything here tells of."""
    memo = keeper.read()
    epochs = [manifest.epoch if manifest else 1, memo.epoch if memo else 1]
    if (home / STORE).exists():
        try:
            with reading(home / STORE) as store:
                epochs.append(int(store.execute("SELECT max(epoch) FROM plane").get or 1))
        except StoreError:
            pass  # broken, or of a release without epochs
    return max(epochs)


def _replace(source: Path, path: Path, aside: Path, held: HomeFile) -> None:
    """Make the copy ready beside its place, move what is there aside, and put it there."""
    new = path.with_name(path.name + NEW)
    for end in (*ENDS, ".lock"):
        Path(f"{new}{end}").unlink(missing_ok=True)
    copy_now(source, new)
    new.chmod(0o600)
    _make_ready(new, held)
    for end in ENDS:
        _move(Path(f"{path}{end}"), aside)
    new.replace(path)
    Path(f"{new}.lock").unlink(missing_ok=True)
    flush_folder(path.parent)


def _make_ready(new: Path, held: HomeFile) -> None:
    """Bring it to this release.  The next start begins the epoch in it, before anything moves."""
    opened = open_file(new, held.migrations, application_id=held.application_id)
    try:
        opened.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        opened.close()
    descriptor = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _move(path: Path, aside: Path) -> None:
    if path.exists():
        path.rename(aside / path.name)
