"""Shows that the counts which close a run are sums over all tests and all workers."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def few_plugins(monkeypatch):
    """Only what is counted with: the others take seconds to import, once for each worker."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


COUNTING = """
    import pytest

    @pytest.mark.parametrize("n", range(10))
    def test_counts(n, tally):
        tally.add("seeds", n)
        tally.add("seeds")
        tally.add("zebras")
        tally.add("crash_runs", 100)
        assert n != 9
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_counts_are_summed_over_tests_failed_ones_included(pytester, workers):
    here = Path(__file__).parents[1] / "conftest.py"
    pytester.makeconftest(here.read_text(encoding="utf-8"))
    pytester.makepyfile(COUNTING)
    result = pytester.runpytest_subprocess("-p", "xdist", "-n", workers)
    result.assert_outcomes(passed=9, failed=1)
    result.stdout.fnmatch_lines(["tenure: crash_runs=1000 seeds=55 zebras=10"])


def test_a_run_that_counted_nothing_says_nothing(pytester):
    here = Path(__file__).parents[1] / "conftest.py"
    pytester.makeconftest(here.read_text(encoding="utf-8"))
    pytester.makepyfile("def test_plain(): pass")
    result = pytester.runpytest_subprocess()
    result.stdout.no_fnmatch_line("tenure:*")


@pytest.mark.parametrize(("name", "n"), [("two words", 1), ("kills", -1)])
def test_a_tally_refuses_what_cannot_be_summed(tally, name, n):
    with pytest.raises(ValueError, match="counts upwards under one word"):
        tally.add(name, n)
