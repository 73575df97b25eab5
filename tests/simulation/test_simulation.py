"""Goal: whatever the order in which everything happens and goes wrong, every promise holds.

Method: thousands of lives of a plane, each drawn from a seed: processes that race, die, sleep and
come back, callers who ask twice and cancel, providers that lose, delay, repeat and refuse.  When
all is calm again every invariant is checked in the world's truth (`proofs.operations.life`).  Some
seeds are lived on a real SQLite file.  That a seed replays is shown with trace hashes, also in a
fresh process that hashes strings otherwise: promise 22.
"""

import itertools

import pytest

from proofs import prove, simulation
from proofs.operations.life import live
from proofs.operations.profiles import MIXES
from proofs.operations.scenarios import Mishap, draw
from proofs.simulation import live_many, replay
from tests.simulation.sqlite_disk import SqliteDisk

pytestmark = pytest.mark.timeout(300)

PARTS = 8
"""Test items for the usual mix, so that several workers can share it."""
SEEDS_A_PART = 250
LONG_SEEDS = 5_000


def check(done, tally, mix="usual"):
    tally.add("seeds", done.seeds)
    told = [f"{replay(lived, mix)}\n    " + "\n    ".join(lived.wrong) for lived in done.failed[:5]]
    assert not done.failed, f"{len(done.failed)} of {done.seeds} seeds:\n" + "\n".join(told)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_in_every_life(part, tally):
    check(live_many(range(part * SEEDS_A_PART, (part + 1) * SEEDS_A_PART)), tally)


@pytest.mark.slow
@pytest.mark.parametrize("mix", sorted(set(MIXES) - {"usual"}))
def test_every_promise_holds_where_a_mix_aims(mix, tally):
    """These are the lives of the proofs, each lived once, however many promises it stands for."""
    check(live_many(range(prove.SEEDS), mix), tally, mix)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mix", sorted(MIXES))
def test_every_promise_holds_for_longer(mix, tally):
    check(live_many(range(20_000, 20_000 + LONG_SEEDS), mix), tally, mix)


def test_a_few_lives_for_the_inner_loop(tally):
    check(live_many(range(100)), tally)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_the_same_on_sqlite(part, tmp_path_factory, tally):
    def on_disk(life, clock, witness):
        return SqliteDisk(tmp_path_factory.mktemp(f"life{life.seed}"), life, clock)

    seeds = range(part * 100, (part + 1) * 100)
    check(live_many(seeds, "alone", disk=on_disk), tally, "alone")


# --- a seed is a life ----------------------------------------------------------------------------


def test_a_seed_gives_the_same_trace_again(tally):
    seeds = range(500, 530)
    assert [live(seed).trace for seed in seeds] == [live(seed).trace for seed in seeds]
    tally.add("seeds", 2 * len(seeds))


def test_a_seed_gives_the_same_trace_in_a_process_that_hashes_otherwise(tally):
    here = [live(seed).trace for seed in range(20)]
    assert prove.traces_elsewhere(20, hash_seed="1") == here
    assert prove.traces_elsewhere(20, hash_seed="2") == here
    tally.add("seeds", 60)


def test_other_seeds_are_other_lives():
    assert len({live(seed).trace for seed in range(30)}) == 30


def test_a_life_is_drawn_before_it_is_lived():
    assert draw(7, MIXES["usual"]) == draw(7, MIXES["usual"])
    assert draw(7, MIXES["usual"]) != draw(8, MIXES["usual"])


def test_the_usual_mix_has_everything_in_it():
    """So that a zero means something: each mishap, each plan and each habit of callers occurs."""
    lives = [draw(seed, MIXES["usual"]) for seed in range(300)]
    troubles = {trouble.what for life in lives for trouble in life.troubles}
    assert troubles == set(Mishap)
    wishes = list(itertools.chain.from_iterable(life.wishes for life in lives))
    assert {wish.plan for wish in wishes} == set(MIXES["usual"].plans)
    assert {wish.operator for wish in wishes} == {"", "retry", "abandon", "resolve"}
    assert any(wish.twice_after == 0.0 for wish in wishes)
    assert any(not wish.keyed for wish in wishes)
    assert any(len(wish.signals) > 1 for wish in wishes)
    assert any(wish.cancel_twice and wish.cancel_after is not None for wish in wishes)
    assert any(life.full for life in lives)
    assert any(life.front for life in lives)
    assert {life.processes for life in lives} == {1, 2, 3}


def test_the_usual_mix_ends_in_every_way():
    states = {state for seed in range(200) for state in live(seed).states}
    assert states == {"SUCCEEDED", "COMPENSATED", "STUCK", "ABANDONED"}


# --- the command ---------------------------------------------------------------------------------


def test_the_command_says_how_many_and_how_fast(capsys):
    assert simulation.main(["--seeds", "10", "--jobs", "1"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("seeds=10 failures=0 seeds_per_second=")


def test_the_command_tells_how_to_see_a_failure_again(capsys, monkeypatch):
    from proofs.operations import life

    monkeypatch.setattr(life, "violations", lambda _: ["a sentence: it does not hold"])
    assert simulation.main(["--seeds", "1", "--first", "3", "--mix", "undo"]) == 1
    told = capsys.readouterr().out
    assert "a sentence: it does not hold" in told
    assert "python -m proofs.simulation --first 3 --seeds 1 --mix undo" in told


@pytest.mark.slow
def test_the_command_shares_the_work_out(capsys):
    assert simulation.main(["--seeds", "120", "--jobs", "2"]) == 0
    assert "seeds=120 failures=0" in capsys.readouterr().out
