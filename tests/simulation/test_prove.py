"""Goal: `make prove P=n` says yes where a promise holds, and no where what it rests on is gone.

Method: each proof is run as the command runs it, once as it is and once without a safeguard.  What
proofs share they do not live again here: of lives, kills and looks that are led astray each takes a
few, and all that the commands take is taken once by `test_simulation`, `test_lifecycle`,
`test_reconcilers` and `tests/real/kills/test_kill9.py`.  The long run takes the commands as they
are.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from proofs import prove
from proofs.operations.ablations import PROVED, by_name
from proofs.reconcilers import perturbations
from tenure.testing.patches import patched

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
SHARING = [number for number, proof in prove.PROOFS.items() if proof.mixes or proof.agents]
"""Proofs that take what others take too."""


@pytest.fixture
def few() -> Iterator[None]:
    """A few of the lives that no safeguard is aimed at."""
    with patched(prove, SEEDS=10, AGENTS_SEEDS=5):
        yield


@pytest.mark.parametrize("number", prove.PROOFS)
def test_a_promise_holds(number, capsys, tally, few):
    thin = patched(perturbations, disturbed=partial(perturbations.disturbed, stride=60))
    with thin, patched(prove, KILLS=5, LOST_SEEDS=5):
        holds(number, capsys, tally)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", SHARING)
def test_a_promise_holds_in_all_that_its_command_takes(number, capsys, tally):
    holds(number, capsys, tally)


def holds(number, capsys, tally):
    assert prove.main([str(number)]) == 0
    told = capsys.readouterr().out
    assert f"P{number} holds; cases=" in told
    if number == 1:
        tally.add("kills", prove.KILLS)


@pytest.mark.parametrize(
    ("number", "safeguard"),
    [
        (1, "ack_after_commit"),
        (1, "event_in_commit"),
        (1, "key_in_commit"),
        (2, "undo_covers_intended"),
        (2, "tombstones"),
        (2, "stuck_is_said"),
        (2, "was_kept"),
        (2, "turn_waited_for"),
        (3, "burned_recorded"),
        (3, "reconciler_orphans"),
        (4, "provider_first"),
        (6, "unknown_waits"),
        (6, "pivot_doubted"),
        (6, "commit_error_stops"),
        (7, "fence_token"),
        (7, "store_judges_leases"),
        (10, "key_in_accept"),
        (10, "fingerprint_compared"),
        (10, "key_of_tenant"),
        (13, "closed_in_accept"),
        pytest.param(13, "parent_guarded", marks=pytest.mark.long),  # 136 lives: see test_lifecycle
        (13, "queued_gives_way"),
        (17, "published_before_marked"),
        (17, "one_of_an_agent_at_a_time"),
        (17, "stable_event_id"),
        (17, "letters_go_first"),
        (18, "agent_of_tenant"),
        (18, "operation_of_tenant"),
        (18, "key_of_tenant"),
        (20, "entries_linked"),
        (20, "head_compared"),
        (21, "allowance_ends"),
        (21, "allowance_of_tenant"),
        (21, "heads_are_timed"),
        (21, "heads_are_bounded"),
        (21, "bodies_are_timed"),
        (21, "answers_are_timed"),
        (22, "seeded_order"),
        (23, "only_adds"),
    ],
)
def test_a_promise_does_not_hold_without_what_it_rests_on(number, safeguard, capsys, few):
    assert prove.main([f"P{number}", "--ablate", safeguard]) == 1
    told = capsys.readouterr().out
    assert f"P{number} does not hold; cases=" in told
    assert "again: python -m proofs." in told


def test_a_safeguard_that_lives_notice_is_aimed_at_by_the_promise_that_rests_on_it():
    for proof in prove.PROOFS.values():
        rested = {prove.ABLATIONS[name].mix for name in prove.relevant(proof.number)}
        if proof.mixes or proof.agents:
            assert rested <= {*proof.mixes, *proof.agents, PROVED}


def test_a_safeguard_names_promises_that_have_a_proof():
    for ablation in prove.ABLATIONS.values():
        assert set(ablation.promises) <= set(prove.PROOFS), ablation.name


def test_no_two_safeguards_have_one_name():
    one = prove.ABLATIONS["key_in_commit"]
    with pytest.raises(ValueError, match="two safeguards are called key_in_commit: rename one"):
        by_name((one, replace(one, protects="another")))


def test_a_safeguard_of_another_promise_is_refused(capsys):
    assert prove.main(["7", "--ablate", "tombstones"]) == 2
    told = capsys.readouterr().out
    assert "P7 does not rest on 'tombstones'; it rests on " in told
    assert "fence_token" in told


def test_a_promise_without_a_proof_is_refused(capsys):
    assert prove.main(["99"]) == 2
    assert prove.main(["x"]) == 2
    known = "1, 2, 3, 4, 6, 7, 10, 13, 17, 18, 20, 21, 22, 23"
    assert f"there is no proof of x yet; there is of {known}" in capsys.readouterr().out
