"""What the tests of storage share: a small file, open, and a hand on its COMMIT."""

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.unit.support.small_file import SCHEMA, FailableConnection, PausedFlush


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.db"


@pytest.fixture
def connection(path: Path) -> Iterator[FailableConnection]:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.execute(SCHEMA)
    yield FailableConnection(connection)
    connection.close()


@pytest.fixture
def paused_flush() -> PausedFlush:
    return PausedFlush()
