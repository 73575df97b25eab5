"""Goal: even a reaction that is lost for good ends in a clean world, and nothing else is touched.

Method: lives in which a fifth of all reactions is lost (`proofs.reconcilers.life`), then the
three ways in which a reconciler is led astray: it is killed in the middle of a look, at every
crossing; it is shown an old view; what it should have heard of never reached it. Each end is
compared with that of a look nobody disturbed. Each reconciler and each safeguard is switched off
in turn, and some life must notice.
"""

import pytest

from proofs.reconcilers.life import live, without
from proofs.reconcilers.perturbations import HURTS, disturbed
from proofs.reconcilers.promises import ABLATIONS, false_deletions
from tenure.reconcilers.driver import RECONCILERS

pytestmark = pytest.mark.timeout(300)
NAMES = ("late", "orphans", "drift", "operations", "grants", "leases", "acknowledgements",
         "letters", "retention", "outbox")  # fmt: skip
SAFEGUARDS = [name for name, one in ABLATIONS.items() if one.promises == (4,)]


def failures(cases):
    return [f"{again}\n    {wrong}" for again, wrong in cases if wrong]


def check(seeds, tally):
    found = []
    for seed in seeds:
        tally.add("seeds")
        wrong = live(seed).wrong
        if wrong:
            found.append(f"live({seed})\n    " + "\n    ".join(wrong[:5]))
    assert not found, f"{len(found)} seeds:\n" + "\n".join(found[:5])


def test_a_few_lives_for_the_inner_loop(tally):
    check(range(3), tally)


@pytest.mark.slow
def test_with_a_fifth_of_reactions_lost_every_life_ends_clean(tally):
    """Those of the proof among them."""
    check(range(150), tally)


@pytest.mark.long
@pytest.mark.timeout(2_400)
def test_with_a_fifth_of_reactions_lost_a_thousand_lives_end_clean(tally):
    check(range(1_000), tally)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_reconciler_that_does_not_look_is_missed(name, tally):
    for seed in range(200):
        tally.add("seeds")
        with without(name):
            wrong = live(seed).wrong
        if wrong:
            assert live(seed).wrong == [], f"seed {seed} fails with {name}, too"
            return
    pytest.fail(f"{name} was not missed within 200 seeds")


def test_every_reconciler_is_among_them():
    assert set(NAMES) == {*RECONCILERS, "outbox"}
    assert {hurt.reconciler for hurt in HURTS.values()} == set(NAMES)


def test_what_an_agent_holds_is_missed_if_it_is_forgotten():
    with ABLATIONS["held_is_known"].off():
        assert any("what_is_held_is_known" in wrong for wrong in live(0).wrong)


def test_what_must_not_be_believed_is_not():
    assert failures(false_deletions()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SAFEGUARDS)
def test_a_safeguard_that_is_off_is_missed(name):
    with ABLATIONS[name].off():
        assert failures(false_deletions()) != []


def test_a_look_that_is_killed_or_shown_an_old_view_ends_like_any_other(tally):
    cases = list(disturbed(stride=60))
    tally.add("crossings", len(cases))
    assert failures(cases) == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_look_killed_at_any_crossing_ends_like_any_other(tally):
    cases = list(disturbed())
    tally.add("crossings", len(cases))
    assert failures(cases) == []
    assert len(cases) > 100 * len(HURTS) / 2
