"""Edges: what an agent may be given to own."""

import pytest

from tenure.app import agents, edges, subscriptions
from tenure.app.subscriptions import Subscribe
from tenure.core.edge import EdgeKind
from tenure.core.errors import NotFound
from tenure.core.subscription import Kind
from tenure.ports.store import Change
from tenure.testing.lifecycle import CALLER, spec_of
from tests.unit.app.lives import STRANGER, alive


@alive
async def test_another_tenants_subscription_is_nobodys_to_own(lives):
    maker = await lives.made("maker")
    asking, asked = CALLER._replace(principal=maker), Subscribe("theirs", Kind.PULL)
    theirs = (await subscriptions.create_subscription(lives.plane, asking, asked))[0].id
    spec = spec_of("stranger")
    stranger = await lives.done(await agents.create_agent(lives.plane, STRANGER, spec))
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

