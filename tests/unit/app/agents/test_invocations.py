"""Invocations: who is let in, how it is counted, and how it learns that the agent was closed."""

import pytest

from proofs.agents.lifecycle import CALLER
from tenure.app.agents import invocations, views
from tenure.app.agents.in_flight import InFlight
from tenure.core.errors import Conflict, NotFound
from tenure.testing.patches import patched
from tests.unit.support.agent_planes import STRANGER, alive


@alive
async def test_an_invocation_counts_from_its_admission_until_its_block_is_left(lives):
    uid = await lives.made()
    in_flight: InFlight = lives.plane.in_flight
    invocation = await invocations.admit(lives.plane, CALLER, "alpha")
    assert in_flight.of(uid) == 1
    with invocation:
        assert not invocation.closed.is_set()
        in_flight.cut(uid)
        assert invocation.closed.is_set()
    assert in_flight.of(uid) == 0


@alive
async def test_an_invocation_that_is_refused_is_not_counted(lives):
    await lives.made()
    with pytest.raises(NotFound):
        await invocations.admit(lives.plane, STRANGER, "alpha")
    await lives.verb("suspend")
    with pytest.raises(Conflict):
        await invocations.admit(lives.plane, CALLER, "alpha")
    assert lives.plane.in_flight.total() == 0


@alive
async def test_an_agent_that_closes_after_the_first_read_is_not_invoked(lives):
    """The row is read again once the invocation is counted: that read sees the close."""
    uid = await lives.made()
    real, reads = views.get_agent_row, list[int]()

    async def get_agent_row(plane, caller, name):
        row = await real(plane, caller, name)
        reads.append(lives.plane.in_flight.of(uid))
        if len(reads) == 1:
            await lives.verb("suspend")
        return row

    with patched(views, get_agent_row=get_agent_row), pytest.raises(Conflict) as refused:
        await invocations.admit(lives.plane, CALLER, "alpha")
    assert refused.value.code == "suspended"
    assert lives.plane.in_flight.total() == 0
    assert reads[0] == 0
    assert reads[-1] == 1, "the last read is one that is counted"
