"""The picture of the flow: the page is not stale, and what a life tells stands in it."""

import json
from pathlib import Path

from proofs import flow
from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.core.agent import AGENT, AgentState
from tenure.core.verb import VerbName
from tenure.plans.agents.lifecycle import PLANS, VERBS
from tenure.reconcilers import drift
from tenure.reconcilers.driver import RECONCILERS
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import agent_test, fault

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


@agent_test
async def test_whatever_a_life_tells_stands_in_the_picture(harness):
    await harness.create_ready()
    serving = [
        name.removesuffix("_agent")
        for name, verb in VERBS.items()
        if (AgentState.READY, verb.accept_trigger) in {row[:2] for row in AGENT.rows}
        and not verb.closes
        and name != VerbName.RECOVER  # by drift, below
    ]
    for name in (*serving, "suspend", "resume", "stop", "resume"):
        await harness.run_verb(name)
    for thing in harness.world.holds(provider="runtime"):
        harness.fakes.runtime.stopped.add(thing.key.text)
    for _ in range(3):
        await drift.tick(harness.plane)
        await harness.loop_until(harness.plane.store.now() + 10)
    await harness.run_verb("delete")
    fault(harness, "access", "ensure", Fault.REFUSED, 2)
    await harness.wait_for(await agents.create_agent(harness.plane, CALLER, spec_of("beta")))
    told = set()
    for row in await harness.plane.store.list_events(limit=1_000):
        if row.type.startswith("agent."):
            told.add((json.loads(row.body)["by"], row.type))
    assert len({by for by, _ in told}) == len(PLANS)
    wrong = [(by, event) for by, event in told if event not in flow.events_of(by)]
    assert wrong == []
