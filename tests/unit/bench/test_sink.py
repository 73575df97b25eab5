"""The benchmark's check that every engine did the same work can fail."""

from importlib import import_module
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[3] / "bench"
SUCCEEDING = ["1", "2", "3", "4"]
FAILING = ["1", "2", "3", "undo-2", "undo-1"]
RESIDUE = ["1", "2", "3", "undo-3", "undo-2", "undo-1"]


@pytest.fixture(autouse=True)
def _path(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def count_lines(tmp_path, *operations, steps, operations_count=2):
    sink = tmp_path / "sink"
    lines = [f"{name} {step}" for name, taken in enumerate(operations) for step in taken]
    sink.write_text("".join(f"{line}\n" for line in lines))
    return import_module("rounds").check_sink(sink, "an engine", operations_count, steps)


@pytest.mark.parametrize(
    ("fail", "residue", "steps"),
    [(False, False, SUCCEEDING), (True, False, FAILING), (True, True, RESIDUE)],
)
def test_the_steps_of_an_operation_are_those_of_its_kind(tmp_path, fail, residue, steps):
    assert import_module("meter").steps(fail=fail, residue=residue) == steps
    assert count_lines(tmp_path, steps, steps, steps=steps) == 2 * len(steps)


@pytest.mark.parametrize(
    "wrong",
    [
        ["1", "2", "3", "undo-2"],
        ["1", "2", "undo-2", "undo-1"],
        ["1", "2", "3", "undo-1", "undo-2"],
        ["1", "2", "3", "undo-2", "undo-2"],
        RESIDUE,
    ],
)
def test_other_work_fails_the_benchmark(tmp_path, wrong):
    rounds = import_module("rounds")
    with pytest.raises(rounds.Failed, match="THE WORK IS NOT THE SAME"):
        count_lines(tmp_path, FAILING, wrong, steps=FAILING)


def test_an_operation_that_is_missing_fails_the_benchmark(tmp_path):
    rounds = import_module("rounds")
    with pytest.raises(rounds.Failed, match="5 steps of 1 operations, asked for were 10"):
        count_lines(tmp_path, FAILING, steps=FAILING)
