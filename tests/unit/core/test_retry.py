"""Retry policies: how delays grow, and that every policy is in the one table."""

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core import retry
from tenure.core.limits import StepLimits
from tenure.core.retry import POLICIES, STEP, RetryPolicy

SRC = Path(retry.__file__).parents[1]


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_step_backs_off_up_to_its_cap_and_jitter_takes_at_most_half(attempts, fraction):
    limits = StepLimits(retry_first_seconds=0.5, retry_cap_seconds=60.0)
    full = min(60.0, 0.5 * 2 ** min(attempts, 30))
    assert limits.retry_seconds(attempts, 0.0) == full
    assert full / 2 <= limits.retry_seconds(attempts, fraction) <= full


def test_a_step_without_numbers_of_its_own_follows_the_policy_in_the_table():
    for attempts in range(12):
        assert StepLimits().retry_seconds(attempts, 0.25) == STEP.delay_seconds(attempts, 0.25)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_delays_start_at_the_first_never_shrink_and_end_at_the_cap(policy):
    delays = list(islice(policy.delays(), 200))
    assert delays[0] == policy.first_seconds
    assert delays == sorted(delays)
    assert delays[-1] == policy.cap_seconds
    assert policy.purpose.endswith(".")


def test_the_other_factors_grow_as_they_say():
    assert list(islice(RetryPolicy(1.0, 3.0, factor=1.5).delays(), 4)) == [1.0, 1.5, 2.25, 3.0]
    assert list(islice(RetryPolicy(30.0, 30.0, factor=1.0).delays(), 2)) == [30.0, 30.0]


def test_a_policy_with_another_first_delay_grows_by_as_much():
    assert RetryPolicy(15.0, 960.0).scaled_to(2.0) == RetryPolicy(2.0, 128.0)


def test_every_policy_of_the_product_is_in_the_table():
    """Only StepLimits makes one of its own: a plan can choose the numbers of its steps."""
    makers = {
        str(path.relative_to(SRC))
        for path in SRC.rglob("*.py")
        if " RetryPolicy(" in path.read_text() and "temporalio" not in path.read_text()
    }
    assert makers == {"core/retry.py", "core/limits.py"}
