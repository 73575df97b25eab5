"""Edges: what an agent may be given to own."""

import pytest

from tenure.app import agents, edges, operations, subscriptions
from tenure.app.subscriptions import Subscribe
from tenure.core.edge import EdgeKind
from tenure.core.errors import NotFound
from tenure.core.operation import State
from tenure.core.subscription import Kind
from tenure.ports.store import Change
from tenure.testing.faults import Fault
from tenure.testing.lifecycle import CALLER, spec_of
from tests.unit.app.lives import STRANGER, alive, fault


@alive
async def test_a_create_that_failed_and_was_made_anew_is_owned_once(lives):
    parent = await lives.made("parent")
    fault(lives, "credentials", "ensure", Fault.REFUSED)
    spec = spec_of("child", parent="parent")
    failed = await lives.done(await agents.create_agent(lives.plane, CALLER, spec))
    assert failed.state == State.COMPENSATED

    async def owned() -> list[str]:
        return [str(row["target"]) for row in await edges.owned_by(lives.plane, parent)]

    assert await owned() == [failed.agent]
    again = await lives.made("child", parent="parent")
    assert await owned() == [again]
    await lives.verb("delete", "child")
    assert await owned() == []


@alive
async def test_another_tenants_subscription_is_nobodys_to_own(lives):
    maker = await lives.made("maker")
    asking, asked = CALLER._replace(principal=maker), Subscribe("theirs", Kind.PULL)
    theirs = (await subscriptions.create_subscription(lives.plane, asking, asked))[0].id
    stranger = await agents.create_agent(lives.plane, STRANGER, spec_of("stranger"))
    await operations.wait(lives.plane, STRANGER.tenant, stranger.id)
    for target in (theirs, "nowhere"):
        with pytest.raises(NotFound, match=f"there is no subscription {target}"):
            await agents.own(
                lives.plane, STRANGER, "stranger", kind=EdgeKind.WEBHOOK, target=target,
                on_delete="revoke",
            )  # fmt: skip
    edge = edges.edge(STRANGER.tenant, stranger.agent, EdgeKind.WEBHOOK, theirs, now=0.0)
    await lives.plane.store.commit(Change("", (), (edge,)))  # as an earlier release let them
    await lives.verb("delete", "maker")
    assert await lives.rows("subscription") == []
