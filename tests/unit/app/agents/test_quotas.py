"""Quotas: rows are counted, and nothing goes up and down."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import quotas
from tenure.core.errors import Conflict, Invalid
from tests.unit.support.agent_planes import STRANGER, VIEWER, alive


@alive
async def test_without_a_quota_there_is_no_bound(lives):
    await lives.made()
    assert await quotas.get_quota(lives.plane, CALLER) == ("agents", None, 1)


@alive
async def test_a_quota_counts_and_everybody_of_the_tenant_may_look(lives):
    await quotas.set_quota(lives.plane, CALLER, most=3)
    await lives.made()
    assert await quotas.get_quota(lives.plane, VIEWER) == ("agents", 3, 1)
    assert await quotas.get_quota(lives.plane, STRANGER) == ("agents", None, 0)


@alive
async def test_a_quota_of_one_tenant_does_not_bind_another(lives):
    await quotas.set_quota(lives.plane, CALLER, most=0)
    await agents.create_agent(lives.plane, STRANGER, spec_of("alpha"))
    with pytest.raises(Conflict) as refused:
        await agents.create_agent(lives.plane, CALLER, spec_of("alpha"))
    assert refused.value.code == "quota_exceeded"


@alive
async def test_a_smaller_quota_leaves_what_is_there(lives):
    await lives.made()
    await lives.made("beta")
    view = await quotas.set_quota(lives.plane, CALLER, most=1)
    assert view == ("agents", 1, 2)
    with pytest.raises(Conflict):
        await agents.create_agent(lives.plane, CALLER, spec_of("gamma"))


@alive
async def test_quotas_that_are_set_at_once_do_not_lose_each_other(lives):
    await asyncio.gather(*(quotas.set_quota(lives.plane, CALLER, most=n) for n in range(10)))
    (row,) = await lives.rows("quota")
    assert row["revision"] == 10
    told = [line for line in await lives.rows("audit") if line["action"] == "quota.set"]
    assert len(told) == 10


@alive
async def test_a_negative_quota_is_refused(lives):
    with pytest.raises(Invalid, match="most"):
        await quotas.set_quota(lives.plane, CALLER, most=-1)
