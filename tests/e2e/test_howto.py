"""What the how-to pages show is run, so that it stays true."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tenure
from tenure import OperationState
from tests.e2e.support.readme import ROOT, blocks_of, deep_imports

pytestmark = pytest.mark.timeout(300)

DOCS = Path(__file__).resolve().parents[2] / "docs"


def program_of(page: str) -> dict[str, Any]:
    """The names that the page's Python leaves behind."""
    names: dict[str, Any] = {}
    for piece in blocks_of("python", (DOCS / "howto" / page).read_text()):
        exec(compile(piece, page, "exec"), names)
    return names


@pytest.mark.parametrize(("approver", "is_approved"), [("eve", True), ("no", False)])
def test_the_first_plan_of_the_page_runs_as_it_shows(tmp_path, monkeypatch, approver, is_approved):
    monkeypatch.chdir(tmp_path)
    names = program_of("write-a-plan.md")
    ended = asyncio.run(names["onboard"]("ada", approver))
    assert ended.state is (OperationState.SUCCEEDED if is_approved else OperationState.COMPENSATED)
    assert len(names["DESKS"]) == (1 if is_approved else 0), "the undo frees what its do has taken"
    if is_approved:
        assert ended.results["approval"] == {"by": "eve"}
        assert ended.result == f"welcome to desk {ended.steps[0].key}"
    else:
        assert "it was not approved" in ended.error


def test_the_plan_and_the_provider_of_the_page_work_together(tmp_path):
    names = program_of("write-a-plan.md")
    provider, plan = names["Names"](), names["CREATE_AGENT"]
    providers = dict.fromkeys(("identity", "access", "runtime", "endpoint"), provider)

    async def main():
        file = tmp_path / "tenure.db"
        async with tenure.open_plane(file, plans=[plan], providers=providers) as plane:
            one = await plane.start("create_agent", input={"name": "ada"})
            two = await plane.start("create_agent", input={"size": "huge"})
            return [await plane.wait(each.id) for each in (one, two)]

    done, undone = asyncio.run(main())
    assert (done.state, undone.state) == (OperationState.SUCCEEDED, OperationState.COMPENSATED)
    assert "no machine of that size" in undone.error
    assert len(provider.keys) == 4, "what the undone one made is gone"


PAGES = [*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md")]


@pytest.mark.parametrize("page", sorted(str(page.relative_to(DOCS.parent)) for page in PAGES))
def test_every_link_of_a_page_leads_somewhere(page):
    text = (DOCS.parent / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text):
        assert (DOCS.parent / page).parent.joinpath(target).exists(), f"{page} links to {target}"


@pytest.mark.parametrize("page", sorted(str(page.relative_to(DOCS.parent)) for page in PAGES))
def test_the_python_of_a_page_imports_nothing_deeper_than_tenure(page):
    deep = [
        name
        for piece in blocks_of("python", (DOCS.parent / page).read_text())
        for name in deep_imports(piece)
    ]
    assert deep == []


@pytest.mark.slow
def test_the_python_of_the_pages_is_typed_as_mypy_wants_it_from_a_user(tmp_path):
    for number, page in enumerate(("README.md", "docs/howto/write-a-plan.md")):
        pieces = blocks_of("python", (ROOT / page).read_text())
        (tmp_path / f"page{number}.py").write_text("\n\n".join(piece.lstrip() for piece in pieces))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "page0.py", "page1.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={**os.environ, "MYPYPATH": str(ROOT / "src")},
    )
    assert checked.returncode == 0, checked.stdout
