"""Goal: whatever the order in which callers, planes and mishaps take their turns, agents are right.

Method: lives of agents drawn from seeds (`proofs.agents.life`): several planes race on
one disk, callers ask for every verb on shared names and take some of it back, planes die, calls are
lost, repeated, refused and late, and an invoker asks all the while where agents are reached. Then
every sentence of `proofs.agents.invariants` is checked. Each safeguard is switched off
in turn, and some life must notice: no check is blind.
"""

import re
from pathlib import Path

import pytest

from proofs import prove
from proofs.agents import ablations as lifecycle_ablations
from proofs.agents import life as lifecycle_life
from proofs.agents.ablations import ABLATIONS, hunt
from proofs.agents.life import MIXES, live
from proofs.operations.ablations import PROVED, likely_first
from tenure.app.agents import subject, verbs

pytestmark = pytest.mark.timeout(300)

LONG_SEEDS = 3_000
PAGE = Path(__file__).resolve().parents[2] / "docs/reference/lifecycle_ablations.md"
IN_LIVES = [name for name, ablation in ABLATIONS.items() if ablation.mix != PROVED]


def check(seeds, mix, tally):
    failed = []
    for seed in seeds:
        lived = live(seed, MIXES[mix])
        tally.add("seeds")
        if lived.wrong:
            failed.append(f"live({seed}, MIXES[{mix!r}])\n    " + "\n    ".join(lived.wrong[:5]))
    assert not failed, f"{len(failed)} seeds:\n" + "\n".join(failed[:5])


def test_a_few_lives_for_the_inner_loop(tally):
    check(range(10), "agents", tally)


@pytest.mark.slow
@pytest.mark.parametrize("mix", sorted(MIXES))
def test_every_sentence_holds_in_every_life(mix, tally):
    """These are the lives of the proofs, each lived once, however many promises it stands for."""
    check(range(prove.AGENTS_SEEDS), mix, tally)


@pytest.mark.long
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("mix", sorted(MIXES))
def test_every_sentence_holds_for_longer(mix, tally):
    check(range(20_000, 20_000 + LONG_SEEDS), mix, tally)


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_LIVES)
def test_a_safeguard_that_is_off_is_missed(name, tally):
    ablation = ABLATIONS[name]
    caught = hunt(ablation, likely_first(name, PAGE.read_text(), range(1_000)))
    tally.add("ablations")
    tally.add("seeds", caught.seeds)
    assert caught.first is not None, f"{name} was not missed within 1,000 seeds"
    calm = live(caught.first, MIXES[ablation.mix])
    assert calm.wrong == [], f"seed {caught.first} fails with {name} on, too"


def test_there_are_enough_of_them():
    assert len(IN_LIVES) >= 8
    assert {10, 13, 18, 20} <= {p for one in ABLATIONS.values() for p in one.promises}


def test_a_safeguard_is_on_again_afterwards():
    def now():
        return verbs.admit_verb, verbs._closing, vars(subject)["CLOSED"], subject._released

    before = now()
    for ablation in ABLATIONS.values():
        with ablation.off():
            pass
    assert now() == before


def test_a_seed_gives_the_same_life_again():
    for seed in range(3):
        assert live(seed).trace == live(seed).trace != ""


def test_invocations_are_let_through_in_a_life():
    assert live(1).invoked > 0


def test_what_breaks_a_life_is_told(monkeypatch):
    async def broken(self):
        raise ZeroDivisionError

    monkeypatch.setattr(lifecycle_life.Simulation, "run", broken)
    assert live(0).wrong == ["no_surprise: ZeroDivisionError()"]


def test_the_commands_say_what_they_did(capsys, tmp_path):
    assert lifecycle_life.main(["--seeds", "2"]) == 0
    assert "seeds=2 failures=0" in capsys.readouterr().out
    page = tmp_path / "page.md"
    given = ["--seeds", "3", "--only", "holder_is_told", "--write", str(page)]
    assert lifecycle_ablations.main(given) == 0
    assert "`holder_is_told`" in page.read_text()


def test_the_page_shows_every_ablation_as_noticed():
    row = r"^\| `(\w+)` \|.*\| (\d+ of \d+|by its proof) \|"
    rows = re.findall(row, PAGE.read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == list(ABLATIONS)
    assert not any(noticed.startswith("0 ") for _, noticed in rows)
