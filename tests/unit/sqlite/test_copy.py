"""A copy is whole, checked and alone under its name, or it is not there."""

import asyncio
from pathlib import Path

import apsw
import pytest

from tenure.core.errors import StoreError
from tenure.sqlite import copy
from tenure.sqlite.copy import copy_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    file = apsw.Connection(str(path))
    file.pragma("journal_mode", "wal")
    file.execute("CREATE TABLE t (x); CREATE INDEX i ON t (x)")
    with file:
        file.executemany("INSERT INTO t VALUES (?)", ((f"{n:0200}",) for n in range(2000)))
    file.close()
    return path


def test_a_copy_is_of_one_moment_however_long_it_takes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "STEP_PAGES", 1)
    writer = apsw.Connection(str(source))

    async def write_meanwhile() -> int:
        copying = asyncio.ensure_future(copy_file(source, tmp_path / "copy.db"))
        written = 0
        while not copying.done():
            writer.execute("INSERT INTO t VALUES ('later')")
            written += 1
            await asyncio.sleep(0)
        await copying
        return written

    assert asyncio.run(write_meanwhile()) > 1
    writer.close()
    copied = apsw.Connection(str(tmp_path / "copy.db"))
    assert copied.execute("SELECT count(*) FROM t").get >= 2000
    assert copied.pragma("integrity_check") == "ok"
    copied.close()
    assert not list(tmp_path.glob("*.partial*"))


def test_a_copy_left_half_made_is_made_again(source: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.db.partial").write_bytes(b"half")
    asyncio.run(copy_file(source, tmp_path / "copy.db"))
    assert (tmp_path / "copy.db").stat().st_size > 100_000


def test_where_no_copy_can_be_written_none_is(source: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No copy was made"):
        asyncio.run(copy_file(source, tmp_path / "missing" / "copy.db"))
    with pytest.raises(StoreError, match="No copy was made"):
        asyncio.run(copy_file(tmp_path / "missing.db", tmp_path / "copy.db"))
    assert not list(tmp_path.glob("copy*"))


def test_a_copy_that_is_not_sound_is_thrown_away(source: Path, tmp_path: Path) -> None:
    content = bytearray(source.read_bytes())
    content[10 * 4096 + 8 : 10 * 4096 + 300] = b"\xee" * 292
    source.write_bytes(content)
    with pytest.raises(StoreError, match="not sound"):
        asyncio.run(copy_file(source, tmp_path / "copy.db"))
    assert not list(tmp_path.glob("copy*"))
