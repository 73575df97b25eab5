"""The pages of docs/reference that are made from the code say what the code says."""

import re
from pathlib import Path

import pytest

from proofs import pages
from proofs.ablations import PAGES as ABLATION_PAGES
from proofs.ablations import ablations_of
from proofs.operations.ablations import LEFT_OUT
from tenure.core.retry import POLICIES, RetryPolicy
from tenure.plans.agents.lifecycle import PLANS

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", pages.PAGES)
def test_no_generated_page_is_stale(name):
    text = (REFERENCE / name).read_text(encoding="utf-8")
    assert pages.PAGES[name](text) == text, "make docs writes it anew"


def test_every_page_is_written_and_a_second_run_writes_none(tmp_path, capsys):
    for name in pages.PAGES:
        text = (REFERENCE / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("\n    [*] --> ", "\n    stale "))
    (tmp_path / "retries.md").unlink()
    pages.main(str(tmp_path))
    assert capsys.readouterr().out.count("wrote ") == len({"retries.md", "states.md"})
    for name in pages.PAGES:
        assert (tmp_path / name).read_text() == (REFERENCE / name).read_text()
    pages.main(str(tmp_path))
    assert capsys.readouterr().out == ""


def test_every_step_of_an_agents_plan_is_explained_and_no_other():
    text = (REFERENCE / "states.md").read_text(encoding="utf-8")
    section = text.partition("\n## The steps of an agent's operations\n")[2].partition("\n## ")[0]
    cells = "".join(re.findall(r"^\| (`[^|]*)\|", section, re.MULTILINE))
    assert set(re.findall("`([a-z_]+)`", cells)) == {step for plan in PLANS for step in plan.steps}


def test_a_policy_more_makes_the_page_of_retries_stale():
    more = {**POLICIES, "MORE": RetryPolicy(1.0, 2.0, purpose="Another.")}
    assert pages.retries_page(more) != pages.retries_page()


def test_make_measures_every_page_of_ablations():
    """The pages are measurements, so they are not compared: their commands must exist."""
    makefile = (REFERENCE.parents[1] / "Makefile").read_text(encoding="utf-8")
    for name, page in ABLATION_PAGES.items():
        assert f"-m proofs.ablations --page {name} --seeds" in makefile
        assert f"--write {page.path}" in makefile


@pytest.mark.parametrize("page", ABLATION_PAGES)
def test_a_page_of_ablations_has_the_sentences_of_the_code(page):
    text = Path(REFERENCE.parents[1], ABLATION_PAGES[page].path).read_text(encoding="utf-8")
    rows = [f"| `{one.name}` | {one.protects} |" for _, one in ablations_of(page)]
    assert [row for row in rows if row not in text] == []
    if page == "operations":
        assert [name for name, why in LEFT_OUT.items() if f"- `{name}`: {why}" not in text] == []
