"""What the how-to pages show is run, so that it stays true."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tenure import Plan, Rejected, Step, nothing, repeat
from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import Accept
from tenure.core.operation import OperationState
from tenure.settings import Settings
from tenure.testing.operators import by
from tenure.wiring import running

pytestmark = pytest.mark.timeout(300)

DOCS = Path(__file__).resolve().parents[2] / "docs"


def program_of(page: str) -> dict[str, Any]:
    """The names that the page's Python leaves behind."""
    text = (DOCS / "howto" / page).read_text()
    names: dict[str, Any] = {}
    for piece in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(piece, page, "exec"), names)
    return names


def test_the_plan_and_the_provider_of_the_page_work_together(tmp_path):
    names = program_of("write-a-plan.md")
    provider, plan = names["Names"](), names["ONBOARD"]
    providers = dict.fromkeys(("identity", "access", "runtime", "endpoint"), provider)

    async def main():
        settings = Settings(store=str(tmp_path / "tenure.db"))
        async with running(settings, plans=[plan], providers=providers) as plane:
            one = await admission.accept(plane, Accept("onboard", input={"name": "ada"}))
            two = await admission.accept(plane, Accept("onboard", input={"size": "huge"}))
            for name in (one.id, two.id):
                said = {"name": "approved", "payload": "eve"}
                await operations.signal(plane, by("eve"), name, **said)
            return [await reads.wait(plane, "default", name) for name in (one.id, two.id)]

    done, undone = asyncio.run(main())
    assert (done.state, undone.state) == (OperationState.SUCCEEDED, OperationState.COMPENSATED)
    assert done.steps[0].result == {"by": "eve"}
    assert "no machine of that size" in undone.error
    assert len(provider.held) == 4, "what the undone one made is gone"


@pytest.mark.parametrize("refused", [False, True])
def test_the_undo_of_the_page_frees_what_its_do_has_taken(tmp_path, refused):
    names = program_of("write-a-plan.md")

    async def last(_call):
        if refused:
            raise Rejected("no")

    plan = Plan("desk", stages=(names["DESK"], Step("last", last, undo=nothing, inspect=repeat)))

    async def main():
        settings = Settings(store=str(tmp_path / "tenure.db"))
        async with running(settings, plans=[plan], providers={}) as plane:
            accepted = await admission.accept(plane, Accept("desk"))
            return await reads.wait(plane, "default", accepted.id)

    ended = asyncio.run(main())
    assert ended.state is (OperationState.COMPENSATED if refused else OperationState.SUCCEEDED)
    assert len(names["DESKS"]) == (0 if refused else 1)


PAGES = [*DOCS.parent.glob("*.md"), *DOCS.rglob("*.md")]


@pytest.mark.parametrize("page", sorted(str(page.relative_to(DOCS.parent)) for page in PAGES))
def test_every_link_of_a_page_leads_somewhere(page):
    text = (DOCS.parent / page).read_text()
    for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", text):
        assert (DOCS.parent / page).parent.joinpath(target).exists(), f"{page} links to {target}"
