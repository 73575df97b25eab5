"""Goal: no reconciler is misled, and what it must not believe is never acted on.

Method: three ways in which a reconciler is disturbed (`proofs.reconcilers.disturbances`): it is
killed in the middle of a pass, at every crossing; it is shown an old view; what it should have
heard of never reached it. Each end is compared with that of a pass nobody disturbed. That runs in
which a fifth of all reactions is lost end clean is shown by `test_simulation`, and that each
reconciler is missed by `test_ablations`.
"""

import pytest

from proofs.reconcilers.ablations import ABLATIONS
from proofs.reconcilers.disturbances import disturbance_checks
from proofs.reconcilers.promises import false_deletions
from proofs.reconcilers.scenarios import SCENARIOS
from tenure.reconcilers.driver import RECONCILERS

pytestmark = pytest.mark.timeout(300)
SAFEGUARDS = [name for name, one in ABLATIONS.items() if one.promises == (4,)]


def failures(checks):
    return [f"{check.again}\n    {check.wrong}" for check in checks if check.wrong]


def test_every_reconciler_is_among_them():
    names = {*RECONCILERS, "outbox"}
    assert {scenario.reconciler for scenario in SCENARIOS.values()} == names
    assert {f"reconciler_{name}" for name in names} <= set(ABLATIONS)


def test_what_must_not_be_believed_is_not():
    assert failures(false_deletions()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SAFEGUARDS)
def test_a_safeguard_that_is_off_is_missed(name):
    with ABLATIONS[name].off():
        assert failures(false_deletions()) != []


def test_a_pass_that_is_killed_or_shown_an_old_view_ends_like_any_other(tally):
    cases = list(disturbance_checks(stride=60))
    tally.add("crossings", len(cases))
    assert failures(cases) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_pass_killed_at_any_crossing_ends_like_any_other(tally):
    cases = list(disturbance_checks())
    tally.add("crossings", len(cases))
    assert failures(cases) == []
    assert len(cases) > 100 * len(SCENARIOS) / 2
