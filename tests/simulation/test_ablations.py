"""Goal: no safeguard is there for nothing, and no check is blind.

Method: each safeguard is switched off in turn, and lives are drawn until one fails; if none of
1,000 does, either the safeguard or the check is worth nothing.  The one that failed when the page
was made is lived first.  That the same lives pass with the
safeguard on is shown by `tests/simulation/test_simulation.py`, and here for the seed that failed.
"""

import re
from pathlib import Path

import pytest

from proofs.operations import ablations
from proofs.operations.ablations import ABLATIONS, Oracle, hunt, likely_first
from proofs.operations.life import live
from proofs.operations.profiles import MIXES
from tenure.core import saga
from tenure.testing.patches import patched

pytestmark = pytest.mark.timeout(300)

SEEDS = range(1_000)
PAGE = Path(__file__).resolve().parents[2] / "docs/reference/ablations.md"


@pytest.mark.slow
@pytest.mark.parametrize("name", ABLATIONS)
def test_a_safeguard_that_is_off_is_missed(name, tally):
    ablation = ABLATIONS[name]
    caught = hunt(ablation, likely_first(name, PAGE.read_text(), SEEDS))
    tally.add("ablations")
    tally.add("seeds", caught.seeds)
    assert caught.first is not None, f"{name} was not missed within {len(SEEDS)} seeds"
    calm = live(caught.first, MIXES[ablation.mix])
    assert calm.wrong == [], f"seed {caught.first} fails with {name} on, too"


def test_there_are_enough_of_them():
    assert len(ABLATIONS) >= 15
    assert {1, 2, 6, 7, 22} <= {p for ablation in ABLATIONS.values() for p in ablation.promises}


def test_a_safeguard_is_on_again_afterwards():
    before = saga.settle, saga.steps_to_undo, saga.next_moves
    for ablation in ABLATIONS.values():
        with ablation.off():
            pass
    assert (saga.settle, saga.steps_to_undo, saga.next_moves) == before


def test_what_is_patched_comes_back_after_an_error():
    class Thing:
        word = "real"

    with patched(Thing, word="other"):
        assert Thing.word == "other"
    with pytest.raises(ZeroDivisionError), patched(Thing, word="other"):
        raise ZeroDivisionError
    assert Thing.word == "real"


def test_the_seed_that_noticed_when_the_page_was_made_is_lived_first():
    page = "| `fenced` | why | S1, P7 | `zombies` | 2 of 9 | 3 | `one_writer` |\n"
    assert likely_first("fenced", page, range(5)) == [3, 0, 1, 2, 4]
    assert likely_first("another", page, range(5)) == [0, 1, 2, 3, 4]
    told = {name: likely_first(name, PAGE.read_text(), SEEDS) for name in ABLATIONS}
    assert any(seeds[0] for seeds in told.values())
    assert all(sorted(seeds) == list(SEEDS) for seeds in told.values())


def test_two_are_about_replay():
    names = [name for name, one in ABLATIONS.items() if one.oracle is Oracle.REPLAY]
    assert names == ["seeded_order", "seeded_ids"]


def test_the_page_shows_every_ablation_as_noticed():
    rows = re.findall(r"^\| `(\w+)` \|.*\| (\d+) of (\d+) \|", PAGE.read_text(), re.MULTILINE)
    assert [name for name, _, _ in rows] == list(ABLATIONS)
    assert all(int(caught) > 0 for _, caught, _ in rows)


@pytest.mark.slow
def test_the_command_writes_the_page(tmp_path, capsys):
    page = tmp_path / "page.md"
    given = ["--seeds", "20", "--only", "undo_covers_intended", "--write", str(page)]
    assert ablations.main(given) == 0
    assert "`undo_covers_intended`" in page.read_text()
    assert "all on, undo: 0 of 20" in capsys.readouterr().out
