"""Quotas: rows are counted, and nothing goes up and down."""

import asyncio

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.tenancy import quotas
from tenure.core.errors import Conflict, Invalid
from tenure.core.records import AuditRecord, QuotaRecord
from tests.unit.support.agent_planes import STRANGER, VIEWER, agent_test


@agent_test
async def test_without_a_quota_there_is_no_bound(harness):
    await harness.create_ready()
    assert await quotas.get_quota(harness.plane, CALLER) == ("agents", None, 1)


@agent_test
async def test_a_quota_counts_and_everybody_of_the_tenant_may_look(harness):
    await quotas.set_quota(harness.plane, CALLER, most=3)
    await harness.create_ready()
    assert await quotas.get_quota(harness.plane, VIEWER) == ("agents", 3, 1)
    assert await quotas.get_quota(harness.plane, STRANGER) == ("agents", None, 0)


@agent_test
async def test_a_quota_of_one_tenant_does_not_bind_another(harness):
    await quotas.set_quota(harness.plane, CALLER, most=0)
    await agents.create_agent(harness.plane, STRANGER, spec_of("alpha"))
    with pytest.raises(Conflict) as refused:
        await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    assert refused.value.code == "quota_exceeded"


@agent_test
async def test_a_smaller_quota_leaves_what_is_there(harness):
    await harness.create_ready()
    await harness.create_ready("beta")
    view = await quotas.set_quota(harness.plane, CALLER, most=1)
    assert view == ("agents", 1, 2)
    with pytest.raises(Conflict):
        await agents.create_agent(harness.plane, CALLER, spec_of("gamma"))


@agent_test
async def test_quotas_that_are_set_at_once_do_not_lose_each_other(harness):
    await asyncio.gather(*(quotas.set_quota(harness.plane, CALLER, most=n) for n in range(10)))
    (row,) = await harness.rows(QuotaRecord)
    assert row.revision == 10
    told = [line for line in await harness.rows(AuditRecord) if line.action == "quota.set"]
    assert len(told) == 10


@agent_test
async def test_a_negative_quota_is_refused(harness):
    with pytest.raises(Invalid, match="most"):
        await quotas.set_quota(harness.plane, CALLER, most=-1)
