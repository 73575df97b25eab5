"""What a file beside or of a store says no to, and that nothing of it is touched."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenure.core.errors import StoreError, StoreForeign, StoreLocked
from tenure.home.epoch_file import EpochFile
from tenure.ports.epoch import Memo
from tenure.sqlite import location


@pytest.mark.parametrize(
    ("note", "target"), [("postgresql://there\n", "postgresql://there"), (None, "another store")]
)
def test_a_file_that_was_moved_says_where_to(tmp_path: Path, note: str | None, target: str) -> None:
    path = tmp_path / "tenure.db"
    if note is not None:
        Path(f"{path}{location.MOVED_NOTE_SUFFIX}").write_text(note, encoding="utf-8")
    header = location.FileHeader(application_id=location.MOVED_APPLICATION_ID, version=1)
    with pytest.raises(StoreForeign, match=f"was moved to {target}: nothing was touched"):
        location.check_owner(path, header, application_id=1, version=1)


def test_an_epoch_that_cannot_be_read_or_written_is_a_sentence(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    file.path.mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        file.read()
    with pytest.raises(StoreError, match="its old content stays"):
        file.write(Memo(epoch=1))


def test_who_builds_on_the_epochs_file_waits_for_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = EpochFile(tmp_path)
    file.write(Memo(epoch=2))
    monkeypatch.setattr("tenure.home.epoch_file.LOCK_SECONDS", 0.01)
    lock = location.Lock.take(file.path)
    with pytest.raises(StoreLocked, match=f"in use by process {os.getpid()}"):
        asyncio.run(file.revise(lambda _: Memo(epoch=3)))
    assert file.read() == Memo(epoch=2)
    lock.release()
    asyncio.run(file.revise(lambda last: last and last._replace(epoch=last.epoch + 1)))
    asyncio.run(file.revise(lambda _: None))
    assert file.read() == Memo(epoch=3)


def test_the_loop_goes_on_while_another_has_the_epochs_file(tmp_path: Path) -> None:
    file = EpochFile(tmp_path)
    lock = location.Lock.take(file.path)

    async def main() -> None:
        revising = asyncio.ensure_future(file.revise(lambda _: Memo(epoch=3)))
        await asyncio.sleep(0)
        assert not revising.done()
        lock.release()  # were the loop held up, nobody would have come here before it gave up
        await revising

    asyncio.run(main())
    assert file.read() == Memo(epoch=3)


RAISES = """
import asyncio
import sys
from pathlib import Path
from tenure.home.epoch_file import EpochFile

file = EpochFile(Path(sys.argv[1]))
for _ in range(20):
    asyncio.run(file.revise(lambda last: last._replace(epoch=last.epoch + 1)))
"""


def test_what_several_processes_write_to_the_epochs_file_is_all_there(tmp_path: Path) -> None:
    EpochFile(tmp_path).write(Memo())
    command = [sys.executable, "-c", RAISES, str(tmp_path)]
    several = [subprocess.Popen(command) for _ in range(3)]
    assert [one.wait(30) for one in several] == [0, 0, 0]
    assert EpochFile(tmp_path).read() == Memo(epoch=61)
