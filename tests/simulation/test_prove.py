"""Goal: `make prove P=n` says yes where a promise holds, and no where what it rests on is gone.

Method: each proof is run as the command runs it, once as it is and once without a safeguard. What
proofs share is not run again here: of simulation runs, crashes, kills and disturbed passes each
takes a few, and all that the commands take is taken once by `test_simulation`, `test_matrix`,
`test_reconcilers` and `tests/real/kills/test_kill9.py`. The long run takes the commands as they
are.
"""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from proofs import prove
from proofs.harness.ablation import BY_PROOF, by_name
from proofs.operations import promises
from proofs.reconcilers import disturbances
from proofs.subjects import ABLATIONS
from tenure.testing.patches import patched

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
ROOT = Path(__file__).resolve().parents[2]
PROFILES = {
    number: {name for _, proof in prove.parts_of(number) for name in proof.profiles}
    for number in prove.PROMISES
}
SHARING = [number for number, profiles in PROFILES.items() if profiles]
"""Proofs that take what others take too."""


@pytest.fixture
def few() -> Iterator[None]:
    """A few of the runs that no safeguard is aimed at, and of the cells of the crash matrix."""
    with patched(prove, SEEDS_MAX=5, CRASHES_ONE_IN=10):
        yield


@pytest.mark.parametrize("number", prove.PROMISES)
def test_a_promise_holds(number, capsys, tally, few):
    thin = patched(
        disturbances, disturbance_checks=partial(disturbances.disturbance_checks, stride=60)
    )
    with thin, patched(promises, KILLS=5):
        holds(number, capsys, tally)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", SHARING)
def test_a_promise_holds_in_all_that_its_command_takes(number, capsys, tally):
    holds(number, capsys, tally)


def holds(number, capsys, tally):
    assert prove.main([str(number)]) == 0
    output = capsys.readouterr().out
    assert f"P{number} holds; cases=" in output
    if number == 1:
        tally.add("kills", promises.KILLS)


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
        pytest.param(13, "parent_guarded", marks=pytest.mark.long),  # many runs: see test_ablations
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
    output = capsys.readouterr().out
    assert f"P{number} does not hold; cases=" in output
    assert "again: python -m proofs." in output


def test_a_safeguard_is_aimed_at_by_the_promise_that_rests_on_it():
    for number in SHARING:
        aimed = {ABLATIONS[name].profile for name in prove.relevant(number)}
        assert aimed <= {*PROFILES[number], BY_PROOF}


def test_a_safeguard_names_promises_that_have_a_proof():
    for ablation in ABLATIONS.values():
        assert set(ablation.promises) <= set(prove.PROMISES), ablation.name


def test_no_two_safeguards_have_one_name():
    one = ABLATIONS["key_in_commit"]
    with pytest.raises(ValueError, match="two safeguards are called key_in_commit: rename one"):
        by_name((one, replace(one, protects="another")))


def test_a_safeguard_of_another_promise_is_refused(capsys):
    assert prove.main(["7", "--ablate", "tombstones"]) == 2
    output = capsys.readouterr().out
    assert "P7 does not rest on 'tombstones'; it rests on " in output
    assert "fence_token" in output


def test_a_promise_without_a_proof_is_refused(capsys):
    assert prove.main(["99"]) == 2
    assert prove.main(["x"]) == 2
    known = "1, 2, 3, 4, 6, 7, 10, 13, 17, 18, 20, 21, 22, 23"
    assert f"there is no proof of x yet; there is of {known}" in capsys.readouterr().out


# --- through make -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "error", "output"),
    [
        (("P=20",), 0, "", "P20 holds; cases="),
        (("P=20", "ABLATE=head_compared"), 2, "Error 1", "P20 does not hold; cases="),
        (("P=20", "ABLATE=tombstones"), 2, "Error 2", "P20 does not rest on 'tombstones'"),
        (("P=99",), 2, "Error 2", "there is no proof of 99 yet"),
    ],
)
def test_make_exits_as_the_page_of_promises_says(words, code, error, output):
    """GNU make exits 2 whatever failed in it, and names the exit code of the command."""
    done = subprocess.run(
        ["make", "--no-print-directory", "prove", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert output in done.stdout
    assert error in done.stderr
