"""Edges: what an agent may be given to own."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app import pages
from tenure.app.agents import commands as agents
from tenure.app.agents import edge_rows, invocations, owned_kinds, ownership
from tenure.app.events import subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.operations import reads
from tenure.core.edge import EdgeKind
from tenure.core.errors import Conflict, NotFound
from tenure.core.operation import OperationState
from tenure.core.records import AgentRecord, EdgeRecord, SubscriptionRecord
from tenure.core.subscription import SubscriptionKind
from tenure.ports.store import Change, Set
from tenure.testing.faults import Fault
from tests.unit.support.agent_planes import STRANGER, agent_test, fault, refusal


@agent_test
async def test_a_create_that_failed_and_was_made_anew_is_owned_once(harness):
    parent = await harness.create_ready("parent")
    fault(harness, "credentials", "ensure", Fault.REFUSED)
    spec = spec_of("child", parent="parent")
    failed = await harness.wait_for(await agents.create_agent(harness.plane, CALLER, spec))
    assert failed.state == OperationState.COMPENSATED

    async def owned_agents() -> list[str]:
        return [row.target for row in await ownership.agent_edges_from(harness.plane, parent)]

    assert await owned_agents() == [failed.agent]
    again = await harness.create_ready("child", parent="parent")
    assert await owned_agents() == [again]
    await harness.run_verb("delete", "child")
    assert await owned_agents() == []


@agent_test
async def test_an_owner_of_more_agents_than_a_page_has_is_read_whole(harness, monkeypatch):
    monkeypatch.setattr(pages, "PAGE_MAX", 2)
    parent = await harness.create_ready("parent")
    children = [await harness.create_ready(f"child-{n}", parent="parent") for n in range(5)]
    edges = await ownership.edges_from(harness.plane, parent)
    assert [row.target for row in edges if row.kind == EdgeKind.AGENT] == sorted(children)


async def own(harness, owner, target, on_delete="revoke"):
    return await owned_kinds.own(
        harness.plane, CALLER, owner, kind=EdgeKind.AGENT, target=target, on_delete=on_delete
    )


async def owned_agents(harness):
    """Who owns whom, by name."""
    names = {row.uid: row.name for row in await harness.rows(AgentRecord)}
    rows = [row for row in await harness.rows(EdgeRecord) if row.kind == EdgeKind.AGENT]
    return sorted((names[row.owner], names[row.target]) for row in rows)


@agent_test
async def test_no_ring_is_closed_that_nobody_outside_answers_for(harness):
    for name in ("one", "two", "three", "outside"):
        await harness.create_ready(name)
    await own(harness, "one", "two")
    await own(harness, "two", "three")
    with pytest.raises(Conflict, match="agent one would be owned only by agents that it owns"):
        await own(harness, "three", "one")
    await invocations.address_of(harness.plane, CALLER, "three")
    await own(harness, "outside", "two")
    await own(harness, "three", "one")
    for name in ("one", "two", "three"):
        await invocations.address_of(harness.plane, CALLER, name)
    await refusal(own(harness, "one", "outside"), "wrong_state")
    await harness.run_verb("delete", "outside")
    assert harness.world.things == {}


@pytest.mark.parametrize("count", [2, 3])
def test_edges_of_one_moment_close_no_ring_together(count):
    @agent_test
    async def play(harness):
        """Each of them has read all it needs before the first of them is written."""
        names = [f"agent-{number}" for number in range(count)]
        for name in names:
            await harness.create_ready(name)
        commit, ready, all_read = harness.plane.store.commit, list[object](), asyncio.Event()

        async def together(change):
            if change.writes[0].table == "edge" and len(ready) < count:
                ready.append(change)
                if len(ready) == count:
                    all_read.set()
                await all_read.wait()
            return await commit(change)

        harness.plane.store.commit = together
        asked = [own(harness, one, names[n - 1]) for n, one in enumerate(names)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, Conflict) for one in answers) == 1
        assert len(await owned_agents(harness)) == count - 1
        for name in names:
            await invocations.address_of(harness.plane, CALLER, name)

    play()


@agent_test
async def test_who_answers_by_a_promise_alone_is_asked_before_it_is_taken_back(harness):
    for name in ("child", "owner", "heir"):
        await harness.create_ready(name)
    await own(harness, "child", "owner")
    await own(harness, "owner", "child", "reassign:heir")
    await refusal(own(harness, "owner", "child"), "wrong_state")
    await invocations.address_of(harness.plane, CALLER, "owner")
    await harness.create_ready("other")
    commit, other = harness.plane.store.commit, [own(harness, "owner", "child", "revoke")]
    await own(harness, "other", "child")

    async def just_before(change):
        if other:
            await other.pop()
        return await commit(change)

    harness.plane.store.commit = just_before  # the promise goes while another edge relies on it
    await refusal(own(harness, "child", "other"), "wrong_state")
    await invocations.address_of(harness.plane, CALLER, "owner")


@agent_test
async def test_why_an_agent_is_closed_is_true(harness):
    uids = [await harness.create_ready(name) for name in ("one", "two")]
    for owner, target in (uids, reversed(uids)):  # as an earlier release let them
        edge = edge_rows.put_edge("default", owner, EdgeKind.AGENT, target, now=0.0)
        parent = Set("agent", (target,), {"parent": owner})
        await harness.plane.store.commit(Change("", (), (edge, parent)))
    with pytest.raises(Conflict, match="agent one is closed: its owners own only each other"):
        await invocations.address_of(harness.plane, CALLER, "one")
    await harness.create_ready("outside")
    await own(harness, "outside", "two")
    await invocations.address_of(harness.plane, CALLER, "one")
    fault(harness, "runtime", "status", Fault.LOST)  # it drains for a while
    await agents.delete_agent(harness.plane, CALLER, "outside")
    with pytest.raises(Conflict, match=r"agent one is closed: agent outside, .* is DELETING"):
        await invocations.address_of(harness.plane, CALLER, "one")


@agent_test
async def test_another_tenants_subscription_is_nobodys_to_own(harness):
    maker = await harness.create_ready("maker")
    asking, asked = (
        CALLER._replace(principal=maker),
        SubscriptionRequest("theirs", SubscriptionKind.PULL),
    )
    theirs = (await subscriptions.create_subscription(harness.plane, asking, asked))[0].id
    stranger = await agents.create_agent(harness.plane, STRANGER, spec_of("stranger"))
    await reads.wait(harness.plane, STRANGER.tenant, stranger.id)
    for target in (theirs, "nowhere"):
        with pytest.raises(NotFound, match=f"there is no subscription {target}"):
            await owned_kinds.own(
                harness.plane,
                STRANGER,
                "stranger",
                kind=EdgeKind.WEBHOOK,
                target=target,
                on_delete="revoke",
            )
    edge = edge_rows.put_edge(STRANGER.tenant, stranger.agent, EdgeKind.WEBHOOK, theirs, now=0.0)
    await harness.plane.store.commit(Change("", (), (edge,)))  # as an earlier release let them
    await harness.run_verb("delete", "maker")
    assert await harness.rows(SubscriptionRecord) == []
