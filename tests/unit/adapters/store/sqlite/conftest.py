"""What the tests of the SQLite store share: a path, and control over what runs beside the loop."""

from pathlib import Path

import pytest

from tests.unit.support.small_file import PausedFlush


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.db"


@pytest.fixture
def paused_flush() -> PausedFlush:
    return PausedFlush()
