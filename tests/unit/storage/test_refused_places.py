"""What a file beside or of a store says no to, and that nothing of it is touched."""

from pathlib import Path

import pytest

from tenure.core.errors import StoreError, StoreForeign
from tenure.ports.epoch import Kept
from tenure.storage import place
from tenure.storage.epoch import EpochFile


@pytest.mark.parametrize(
    ("note", "said"), [("postgresql://there\n", "postgresql://there"), (None, "another store")]
)
def test_a_file_that_was_moved_says_where_to(tmp_path: Path, note: str | None, said: str) -> None:
    path = tmp_path / "tenure.db"
    if note is not None:
        Path(f"{path}{place.MOVED_NOTE}").write_text(note, encoding="utf-8")
    header = place.Header(application_id=place.MOVED, version=1)
    with pytest.raises(StoreForeign, match=f"was moved to {said}: nothing was touched"):
        place.check_owner(path, header, application_id=1, version=1)


def test_an_epoch_that_cannot_be_read_or_written_is_a_sentence(tmp_path: Path) -> None:
    kept = EpochFile(tmp_path)
    kept.path.mkdir()
    with pytest.raises(StoreError, match="Is a directory"):
        kept.read()
    with pytest.raises(StoreError, match="what it said before stands"):
        kept.write(Kept(epoch=1))
