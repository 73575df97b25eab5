"""The picture of the flow: the page is not stale, and what a life tells stands in it."""

import json
from pathlib import Path

from proofs import flow
from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.core.agent import AGENT, AgentState, Verb
from tenure.plans.agents.lifecycle import PLANS, VERBS
from tenure.reconcilers import drift
from tenure.reconcilers.driver import RECONCILERS
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import alive, fault

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "flow.md"


def test_the_page_in_the_docs_is_not_stale():
    assert PAGE.read_text() == flow.page(), "python -m proofs.flow > docs/reference/flow.md"


def test_a_reconciler_or_reaction_more_makes_it_stale():
    with patched(flow, RECONCILERS={**RECONCILERS, "more": drift}):
        assert PAGE.read_text() != flow.page()
    with patched(flow, REACTIONS={}):
        assert PAGE.read_text() != flow.page()
    with patched(flow, PLANS=PLANS[1:]):
        assert PAGE.read_text() != flow.page()


@alive
async def test_whatever_a_life_tells_stands_in_the_picture(lives):
    await lives.made()
    serving = [
        name.removesuffix("_agent")
        for name, verb in VERBS.items()
        if (AgentState.READY, verb.request) in {row[:2] for row in AGENT.rows}
        and not verb.closes
        and name != Verb.RECOVER  # by drift, below
    ]
    for name in (*serving, "suspend", "resume", "stop", "resume"):
        await lives.verb(name)
    for thing in lives.world.holds(provider="runtime"):
        lives.fakes.runtime.stopped.add(thing.key.text)
    for _ in range(3):
        await drift.tick(lives.plane)
        await lives.loop_until(lives.plane.store.now() + 10)
    await lives.verb("delete")
    fault(lives, "access", "ensure", Fault.REFUSED, 2)
    await lives.done(await agents.create_agent(lives.plane, CALLER, spec_of("beta")))
    told = set()
    for row in await lives.plane.store.list_events(limit=1_000):
        if str(row["type"]).startswith("agent."):
            told.add((json.loads(str(row["body"]))["by"], str(row["type"])))
    assert len({by for by, _ in told}) == len(PLANS)
    wrong = [(by, event) for by, event in told if event not in flow.told_by(by)]
    assert wrong == []
