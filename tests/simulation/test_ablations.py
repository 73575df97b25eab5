"""Goal: no safeguard is there for nothing, and no check is blind.

Method: each safeguard of each subject is switched off in turn, and seeds are simulated until one
fails; if none of 1,000 does, either the safeguard or the check is worth nothing.  The seed that
failed when the page was made is run first.  That the same seeds pass with the safeguard on is shown
by `tests/simulation/test_simulation.py`, and here for the seed that failed.
"""

import re
from pathlib import Path

import pytest

from proofs import ablations
from proofs.ablations import PAGES, ablations_of
from proofs.harness.ablation import Oracle, hunt, likely_first
from proofs.harness.simulation import simulate
from proofs.subjects import ABLATIONS, SUBJECTS
from tenure.app.agents import subject, verbs
from tenure.core import saga
from tenure.testing.patches import patched

pytestmark = pytest.mark.timeout(300)

SEEDS = range(1_000)
ROOT = Path(__file__).resolve().parents[2]
TEXTS = {name: (ROOT / page.path).read_text(encoding="utf-8") for name, page in PAGES.items()}
SIMULATED = [
    (page, one, ablation.name)
    for page in PAGES
    for one, ablation in ablations_of(page)
    if ablation.is_simulated
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "one", "name"), SIMULATED, ids=[name for *_, name in SIMULATED])
def test_a_safeguard_that_is_off_is_missed(page, one, name, tally):
    ablation = ABLATIONS[name]
    found = hunt(one.simulation, ablation, likely_first(name, TEXTS[page], SEEDS))
    tally.add("ablations")
    tally.add("seeds", found.seeds)
    assert found.first is not None, f"{name} was not missed within {len(SEEDS)} seeds"
    calm = simulate(one.simulation, found.first, ablation.profile)
    assert calm.wrong == [], f"seed {found.first} fails with {name} on, too"


def test_there_are_enough_of_them():
    of_operations = SUBJECTS["operations"].ablations.values()
    assert len(of_operations) >= 15
    assert {1, 2, 6, 7, 22} <= {p for ablation in of_operations for p in ablation.promises}
    of_agents = SUBJECTS["agents"].ablations.values()
    assert len([one for one in of_agents if one.is_simulated]) >= 8
    assert {10, 13, 18, 20} <= {p for ablation in of_agents for p in ablation.promises}


def test_a_safeguard_is_on_again_afterwards():
    def now():
        of_saga = saga.decide_outcome, saga.steps_to_undo, saga.next_moves
        of_agents = (
            verbs.admit_verb,
            verbs._supersede,
            vars(subject)["SUPERSEDED"],
            subject._release_writes,
        )
        return of_saga, of_agents

    before = now()
    for ablation in ABLATIONS.values():
        with ablation.off():
            pass
    assert now() == before


def test_what_is_patched_comes_back_after_an_error():
    class Thing:
        word = "real"

    with patched(Thing, word="other"):
        assert Thing.word == "other"
    with pytest.raises(ZeroDivisionError), patched(Thing, word="other"):
        raise ZeroDivisionError
    assert Thing.word == "real"


def test_the_seed_that_noticed_when_the_page_was_made_is_run_first():
    page = "| `fenced` | why | S1, P7 | `zombies` | 2 of 9 | 3 | `one_writer` |\n"
    assert likely_first("fenced", page, range(5)) == [3, 0, 1, 2, 4]
    assert likely_first("another", page, range(5)) == [0, 1, 2, 3, 4]
    found = {name: likely_first(name, TEXTS[page], SEEDS) for page, _, name in SIMULATED}
    assert any(seeds[0] for seeds in found.values())
    assert all(sorted(seeds) == list(SEEDS) for seeds in found.values())


def test_two_are_about_replay():
    names = [name for name, one in ABLATIONS.items() if one.oracle is Oracle.REPLAY]
    assert names == ["seeded_order", "seeded_ids"]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_every_ablation_as_noticed(page):
    row = r"^\| `(\w+)` \|.*\| (\d+ of \d+|by its proof) \|"
    rows = re.findall(row, TEXTS[page], re.MULTILINE)
    assert [name for name, _ in rows] == [ablation.name for _, ablation in ablations_of(page)]
    assert not any(noticed.startswith("0 ") for _, noticed in rows)


def test_every_ablation_is_on_a_page():
    assert {ablation.name for page in PAGES for _, ablation in ablations_of(page)} == set(ABLATIONS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "name", "profile"),
    [("operations", "undo_covers_intended", "undo"), ("lifecycle", "holder_is_told", "closing")],
)
def test_the_command_writes_the_page(page, name, profile, tmp_path, capsys):
    path = tmp_path / "page.md"
    given = ["--page", page, "--seeds", "20", "--only", name, "--write", str(path)]
    assert ablations.main(given) == 0
    assert f"`{name}`" in path.read_text()
    assert f"all on, {profile}: 0 of 20" in capsys.readouterr().out
