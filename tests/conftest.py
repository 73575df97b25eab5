"""What every test may ask for: `tally`, which counts the work behind a claim.

The harness counts, never the reader: each test adds what it did, the sums travel home with the
test reports (so they hold for one process and for many workers alike), and the run closes with one
line such as `tenure: crash_runs=21034 kills=200 seeds=3000 ablations=18`. Here is said, too, who
begins first and whose branches are counted. Real servers are in `tenure.testing.server_fixtures`;
nothing else that tests share belongs here.
"""

import logging
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from tenure.telemetry.logs import RepeatFilter

pytest_plugins = ["tenure.testing.server_fixtures"]

# The order of the closing line; names that are not here follow in the order of the alphabet.
ORDER = ("crash_runs", "kills", "seeds", "ablations")
INSIDE = "inside_"
"""Names that begin so are shown as a table before the closing line: kills by plan and step."""
PROMISE_COUNT = re.compile(r"promise_(\d+)_on_([a-z]+)_([a-z]+)")
"""Names like this are shown as one table: how many cases of each promise held on each stack."""
_PROPERTY = "tenure.tally"
MEASURED_PATHS = tuple(os.environ.get("MEASURED", "").split())
"""Where branches are counted, if they are: see the Makefile."""

# The same examples on every run, and no bound on one example: a test as a whole has its timeout.
hypothesis.settings.register_profile("tenure", deadline=None, derandomize=True)
hypothesis.settings.load_profile("tenure")


class Tally:
    """What one test has counted so far."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, name: str, n: int = 1) -> None:
        """Counts n more of what `name` says."""
        if not name.isidentifier() or n < 0:
            raise ValueError(f"a tally counts upwards under one word, not {name!r} by {n}")
        self.counts[name] += n


class Totals:
    """Sums the tallies of all finished tests, on whichever worker, and prints them at the end."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":  # the last report of a test carries all its properties
            for name, value in report.user_properties:
                if name == _PROPERTY and isinstance(value, dict):
                    self.counts.update(value)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        inside = {name: n for name, n in self.counts.items() if name.startswith(INSIDE)}
        for name, n in sorted(inside.items()):
            terminalreporter.write_line(f"{n:6} kills inside {name.removeprefix(INSIDE)}")
        for row in by_stack(self.counts):
            terminalreporter.write_line(row)
        shown = {*inside, *filter(PROMISE_COUNT.fullmatch, self.counts)}
        rest = Counter({name: n for name, n in self.counts.items() if name not in shown})
        if rest:
            terminalreporter.write_line(f"tenure: {line(rest)}")


def by_stack(counts: Counter[str]) -> list[str]:
    """Returns the table of promises by stack: the cases that held, a dash where none was run."""
    cases = {}
    for name, n in counts.items():
        if said := PROMISE_COUNT.fullmatch(name):
            cases[int(said[1]), f"{said[2]} + {said[3]}"] = n
    # SQLite first, and of one store the embedded engine first.
    stacks = sorted({stack for _, stack in cases}, key=lambda stack: (stack[0] != "s", stack))
    if not cases:
        return []
    rows = ["cases held" + "".join(f"{stack:>22}" for stack in stacks)]
    for promise in sorted({promise for promise, _ in cases}):
        row = "".join(f"{cases.get((promise, stack), '-'):>22}" for stack in stacks)
        rows.append(f"P{promise:<9}{row}")
    return rows


def line(counts: Counter[str]) -> str:
    """Returns the counts as the closing line shows them."""
    names = [n for n in ORDER if n in counts] + sorted(n for n in counts if n not in ORDER)
    return " ".join(f"{name}={counts[name]}" for name in names)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker's reports are summed where they arrive
        config.pluginmanager.register(Totals(), "tenure-totals")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What may take longest begins first, so that no worker is left with it at the end."""
    items.sort(key=seconds_of, reverse=True)


def seconds_of(item: pytest.Item) -> float:
    """Returns what a test says that it may take at most."""
    said = item.get_closest_marker("timeout")
    return float(said.args[0]) if said and said.args else 0.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Count branches in what is measured alone: it would make the mass runs thrice as long."""
    if not MEASURED_PATHS or is_measured(item):
        return (yield)
    here, elsewhere = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        threading.settrace(elsewhere)
        sys.settrace(here)


def is_measured(item: pytest.Item) -> bool:
    """Tells whether the branches that this test takes are counted."""
    return item.nodeid.startswith(MEASURED_PATHS) and item.get_closest_marker("slow") is None


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    """Counts what this test does; the sums over all tests close the run."""
    counted = Tally()
    yield counted
    if counted.counts:
        request.node.user_properties.append((_PROPERTY, dict(counted.counts)))


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """What a test lets log to standard error, sparing lines for a minute, ends with that test."""
    root = logging.getLogger()
    level = root.level
    yield
    if any(isinstance(one, RepeatFilter) for handler in root.handlers for one in handler.filters):
        root.handlers[:] = [
            handler
            for handler in root.handlers
            if not any(isinstance(one, RepeatFilter) for one in handler.filters)
        ]
        root.setLevel(level)
