"""The cascade: what goes with an agent, compared with a reference that shares no code with it.

The reference marks and sweeps over plain sets: what can be reached from an agent that nobody owns
and that is not deleted stays, everything else below the deleted one goes.
"""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.store import sqlite
from tenure.app.agents import cascade, edge_rows, invocations, owned_kinds, ownership
from tenure.app.agents import commands as agents
from tenure.app.agents import views as agent_views
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.plane import Plane
from tenure.core.agent import AgentState
from tenure.core.edge import EdgeKind
from tenure.core.errors import Conflict, LimitExceeded
from tenure.core.limits import OWNERS_MAX
from tenure.core.records import AgentNameRecord, AgentRecord, EdgeRecord
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Change, Put
from tenure.testing.faults import Fault
from tenure.testing.loop import run
from tenure.testing.operators import by
from tests.unit.support.agent_planes import AgentHarness, agent_test, fault, refusal


def reference(count, owns, root):
    """Who is left when `root` is deleted; `owns` are pairs of numbers."""
    below: dict[int, set[int]] = {}
    for owner, target in owns:
        below.setdefault(owner, set()).add(target)

    def reachable(starts):
        found, left = set(starts), list(starts)
        while left:
            for one in below.get(left.pop(), ()):
                if one not in found and one != root:
                    found.add(one)
                    left.append(one)
        return found

    owned = {target for _, target in owns}
    tops = {one for one in range(count) if one not in owned} - {root}
    return set(range(count)) - (reachable([root]) - reachable(tops))


def graph(rng, count, *, extra):
    """A forest with further edges: diamonds and cycles."""
    owns = {(rng.randrange(n), n) for n in range(1, count) if rng.random() < 0.8}
    for _ in range(extra):
        one, other = rng.sample(range(count), 2)
        owns.add((one, other))
    owned = {target for _, target in owns}
    tops = [one for one in range(count) if one not in owned]
    if not tops:
        owns = {(one, other) for one, other in owns if other != 0}
    return reachable(count, owns)


def reachable(count, owns):
    """Without agents that only own each other: no create makes such a ring out of nothing."""
    while True:
        owned = {target for _, target in owns}
        found, left = set(), [one for one in range(count) if one not in owned]
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += [target for owner, target in owns if owner == one]
        stray = sorted(set(range(count)) - found)
        if not stray:
            return owns
        owns = {(one, other) for one, other in owns if other != stray[0]}


async def create_graph(harness, count, owns):
    """The agents of a graph, READY, with its edges."""
    uids = [await harness.create_ready(f"agent-{number}") for number in range(count)]
    for owner, target in sorted(owns):
        await owned_kinds.own(
            harness.plane,
            CALLER,
            uids[owner],
            kind=EdgeKind.AGENT,
            target=uids[target],
            on_delete="revoke",
        )
    return uids


async def standing(harness, uids):
    rows = [await harness.plane.store.find(AgentRecord, (uid,)) for uid in uids]
    return {number for number, row in enumerate(rows) if row.state != AgentState.DELETED}


@pytest.mark.parametrize("seed", range(40))
def test_a_small_graph_ends_as_the_reference_says(seed):
    async def play(loop):
        harness = AgentHarness(loop)
        await harness.start()
        rng = random.Random(f"graph/{seed}")
        count = rng.randint(2, 9)
        owns = graph(rng, count, extra=rng.randint(0, 6))
        root = rng.randrange(count)
        uids = await create_graph(harness, count, owns)
        wanted = reference(count, owns, root) - {root}
        row = await harness.plane.store.find(AgentRecord, (uids[root],))
        assert row is not None
        shown = await cascade.tree(harness.plane, row, limit=1_000)
        fated = {uids.index(one.target) for one in shown if one.effect == "delete"}
        assert fated == set(range(count)) - wanted - {root}
        deleted = await harness.run_verb("delete", uids[root], drain_seconds=0.0)
        assert deleted.state == "SUCCEEDED", deleted.error
        assert await standing(harness, uids) == wanted
        kept = {uids[number] for number in wanted}
        assert {thing.key.agent for thing in harness.world.things.values()} == kept
        rows = await harness.rows(EdgeRecord)
        left = {(row.owner, row.target) for row in rows if row.kind == EdgeKind.AGENT}
        assert left == {(uids[a], uids[b]) for a, b in owns if a in wanted and b in wanted}
        others = [(row.kind, row.owner) for row in rows if row.kind != EdgeKind.AGENT]
        assert sorted(others) == sorted((EdgeKind.CREDENTIAL, uid) for uid in kept)
        assert await harness.violations() == []

    run(seed, play)


@pytest.mark.parametrize("verb", ["suspend", "stop"])
def test_what_an_agent_owns_goes_on_serving_while_it_rests(verb):
    @agent_test
    async def play(harness):
        await harness.create_ready("top")
        await harness.create_ready("below", parent="top")
        await harness.run_verb(verb, "top")
        await refusal(invocations.address_of(harness.plane, CALLER, "top"), "suspended")
        assert await harness.agent_state("below") is AgentState.READY
        await invocations.address_of(harness.plane, CALLER, "below")

    play()


@agent_test
async def test_one_commit_closes_everything_below_and_taking_it_back_opens_it(harness):
    await harness.create_ready("top")
    await harness.create_ready("middle", parent="top")
    await harness.create_ready("bottom", parent="middle")
    fault(harness, "runtime", "status", Fault.LOST)  # it drains for a while
    deleted = await agents.delete_agent(harness.plane, CALLER, "top")
    await refusal(invocations.address_of(harness.plane, CALLER, "bottom"), "wrong_state")
    below = agents.create_agent(harness.plane, CALLER, spec_of("more", parent="bottom"))
    await refusal(below, "wrong_state")
    assert await harness.agent_state("bottom") is AgentState.READY
    await operations.cancel(harness.plane, by("ann"), deleted.id)
    await harness.wait_for(deleted)
    await invocations.address_of(harness.plane, CALLER, "bottom")


@pytest.mark.parametrize("seed", range(60))
def test_no_child_is_made_under_an_owner_that_is_going(seed):
    """A grandchild is asked for at the moment at which its grandparent is deleted."""

    async def play(loop):
        harness = AgentHarness(loop)
        await harness.start()
        await harness.create_ready("top")
        await harness.create_ready("middle", parent="top")
        rng = random.Random(f"race/{seed}")

        async def later(request):
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.005, 0.01)))
            return await request

        child = agents.create_agent(harness.plane, CALLER, spec_of("child", parent="middle"))
        gone = agents.delete_agent(harness.plane, CALLER, "top", drain_seconds=0.0)
        asked = later(child), later(gone)
        answers: Any = await asyncio.gather(*asked, return_exceptions=True)
        await harness.wait_for(answers[1])
        await asyncio.sleep(60)
        assert harness.world.things == {}, answers[0]
        assert isinstance(answers[0], Conflict) or await harness.rows(AgentNameRecord) == []

    run(seed, play)


@agent_test
async def test_a_child_is_reassigned_where_its_edge_says_so(harness):
    await harness.create_ready("heir")
    await harness.create_ready("parent")
    child = await harness.create_ready("child", parent="parent", on_delete="reassign:heir")
    await harness.create_ready("other", parent="parent")
    row = await agent_views.get_agent_row(harness.plane, CALLER, "parent")
    shown = await cascade.tree(harness.plane, row, limit=100)
    assert sorted((one.kind, one.name, one.effect.partition(":")[0]) for one in shown)[:2] == [
        ("agent", "child", "reassign"),
        ("agent", "other", "delete"),
    ]
    assert [(one.kind, one.effect) for one in shown if one.kind != "agent"] == [
        ("credential", "revoke"),
        ("credential", "revoke"),  # of the parent and of the other
    ]
    await harness.run_verb("delete", "parent")
    assert await harness.agent_state("child") is AgentState.READY
    heir = await agent_views.get_agent(harness.plane, CALLER, "heir")
    assert (await agent_views.get_agent(harness.plane, CALLER, "child")).parent == heir.uid
    assert len(harness.holders(child)) == 4
    await harness.run_verb("delete", "heir")
    assert harness.world.things == {}


@agent_test
async def test_an_heir_that_goes_too_inherits_nothing(harness):
    await harness.create_ready("top")
    await harness.create_ready("heir", parent="top")
    await harness.create_ready("child", parent="top", on_delete="reassign:heir")
    await harness.run_verb("delete", "top")
    assert harness.world.things == {}


@agent_test
async def test_two_deletions_in_one_ring_do_not_wait_for_each_other(harness):
    uids = [
        *await create_graph(harness, 3, {(0, 1), (1, 2)}),
        await harness.create_ready("outside"),
    ]
    for owner, target in ((3, 0), (2, 0)):
        await owned_kinds.own(
            harness.plane,
            CALLER,
            uids[owner],
            kind=EdgeKind.AGENT,
            target=uids[target],
            on_delete="revoke",
        )
    first = await agents.delete_agent(harness.plane, CALLER, uids[0], drain_seconds=0.0)
    second = await agents.delete_agent(harness.plane, CALLER, uids[1], drain_seconds=0.0)
    for one in (first, second):
        assert (await harness.wait_for(one)).state == "SUCCEEDED"
    assert await standing(harness, uids) == {3}


@agent_test
async def test_what_there_was_no_time_to_ask_for_is_asked_at_the_next_look(harness, monkeypatch):
    monkeypatch.setattr(cascade, "REQUESTS_AT_ONCE", 1)
    monkeypatch.setattr(cascade, "REQUEST_SECONDS", 0.0)
    uids = await create_graph(harness, 4, {(0, 1), (1, 2), (1, 3)})
    top = await agents.delete_agent(harness.plane, CALLER, uids[0], drain_seconds=0.0)
    below = await cascade.delete_owned(harness.plane, uids[0], top.id)
    assert (len(below.remaining), below.has_unrequested) == (3, True)
    assert (await harness.wait_for(top)).state == "SUCCEEDED"
    assert await standing(harness, uids) == set()


@agent_test
async def test_an_agent_that_owns_no_agents_is_deleted_without_a_walk(harness, monkeypatch):
    uids = await create_graph(harness, 1, set())
    alone = await agents.delete_agent(harness.plane, CALLER, uids[0], drain_seconds=0.0)
    assert (await harness.wait_for(alone)).state == "SUCCEEDED"

    async def refuse(plane, root):
        raise AssertionError(root)

    monkeypatch.setattr(cascade, "_unowned_below", refuse)
    assert not (await cascade.delete_owned(harness.plane, uids[0], alone.id)).remaining


async def deep(harness, count, *, top="agent-0"):
    """So many READY agents, each owned by the one before it, as rows alone; their uids."""
    uids = [await harness.create_ready(top)]
    for number in range(1, count):
        uid, name = f"{number:032x}", f"{top}-{number}"
        row = {
            "tenant": "default",
            "generation": 1,
            "name": name,
            "state": "READY",
            "epoch": 1,
            "parent": uids[-1],
            "spec": "{}",
        }
        edge = edge_rows.put_edge("default", uids[-1], EdgeKind.AGENT, uid, now=0.0)
        named = Put("agent_name", ("default", name), {"agent": uid})
        await harness.plane.store.commit(Change("", (), (Put("agent", (uid,), row), named, edge)))
        uids.append(uid)
    return uids


@agent_test
async def test_a_chain_of_owners_is_bounded(harness):
    await deep(harness, OWNERS_MAX + 3)
    below = spec_of("deep", parent=f"agent-0-{OWNERS_MAX + 2}")
    with pytest.raises(LimitExceeded):
        await agents.create_agent(harness.plane, CALLER, below)


@agent_test
async def test_a_chain_of_owners_is_bounded_from_below_too(harness):
    uids = await deep(harness, OWNERS_MAX)
    await harness.create_ready("top")
    await harness.create_ready("above")

    async def own(owner, target):
        kind = EdgeKind.AGENT
        await owned_kinds.own(
            harness.plane, CALLER, owner, kind=kind, target=target, on_delete="revoke"
        )

    await own("top", uids[0])
    with pytest.raises(LimitExceeded, match="at most 64 deep"):
        await own("above", "top")
    await own("above", uids[1])  # it has an owner already: nothing is further down


@agent_test
async def test_a_deletion_that_does_nothing_but_fail_is_stuck_and_goes_on_once_it_can(
    harness, monkeypatch
):
    async def broken(*_):
        raise RecursionError("too deep")

    uids = await create_graph(harness, 2, {(0, 1)})
    with monkeypatch.context() as patch:
        patch.setattr(cascade, "delete_owned", broken)
        asked = await agents.delete_agent(harness.plane, CALLER, uids[0], drain_seconds=0.0)
        await asyncio.sleep(1_200)
        found = await reads.get_operation(harness.plane, CALLER.tenant, asked.id)
        assert found.state == "STUCK"
        assert "sub_agents was not done and failed 32 times in a row: " in str(found.error)
    await asyncio.sleep(60)
    assert (await reads.get_operation(harness.plane, CALLER.tenant, asked.id)).state == "SUCCEEDED"
    assert harness.world.things == {}


async def write_graph(tmp_path, count, owns):
    """A plane on a real file with the rows of a graph, and its agents' uids."""
    store = sqlite.build(tmp_path / "graph.db", clock=SystemClock())
    uid = [f"{number:032x}" for number in range(count)]
    parents = {target: owner for owner, target in sorted(owns)}
    for start in range(0, count, 500):
        puts: Any = [
            Put(
                "agent",
                (uid[n],),
                {
                    "tenant": "default",
                    "generation": 1,
                    "state": "READY",
                    "name": f"a-{n}",
                    "parent": uid[parents[n]] if n in parents else None,
                },
            )
            for n in range(start, start + 500)
        ]
        await store.commit(Change("", (), tuple(puts)))
    pairs = sorted(owns)
    for start in range(0, len(pairs), 500):
        rows: Any = [
            edge_rows.put_edge("default", uid[a], EdgeKind.AGENT, uid[b], now=0.0)
            for a, b in pairs[start : start + 500]
        ]
        await store.commit(Change("", (), tuple(rows)))
    nobody: Any = None
    return Plane("plane", store, nobody, SystemEntropy(), Catalogue(), {}), uid


@pytest.mark.timeout(120)
def test_a_graph_of_ten_thousand_agents_agrees_with_the_reference(tmp_path: Path):
    """Rows alone, on a real file: which agents would go, with diamonds and cycles among them."""

    async def play():
        rng = random.Random(20)
        count = 10_000
        owns = {(rng.randrange(max(0, n - 300), n), n) for n in range(1, count) if n % 997}
        owns |= {(rng.randrange(count), rng.randrange(count)) for _ in range(400)}
        owns = {(a, b) for a, b in owns if b % 997 and a != b}
        plane, uid = await write_graph(tmp_path, count, owns)
        for root in (0, 997, rng.randrange(1, 900), rng.randrange(count)):
            row = await plane.store.find(AgentRecord, (uid[root],))
            assert row is not None
            shown = await cascade.tree(plane, row, limit=100_000)
            fated = {int(one.target, 16) for one in shown if one.effect == "delete"}
            assert fated == set(range(count)) - reference(count, owns, root) - {root}
        await plane.store.close()

    asyncio.run(play())


def test_a_chain_that_is_too_deep_is_walked_all_the_same(tmp_path: Path):
    async def play():
        count = 1_500
        plane, uid = await write_graph(tmp_path, count, {(n, n + 1) for n in range(count - 1)})
        bottom = await plane.store.find(AgentRecord, (uid[-1],))
        assert bottom is not None
        assert len(await ownership.require_open_owner(plane, bottom)) == count - 1
        top = await plane.store.find(AgentRecord, (uid[0],))
        assert top is not None
        shown = await cascade.tree(plane, top, limit=count)
        assert [one.effect for one in shown] == ["delete"] * (count - 1)
        await plane.store.close()

    asyncio.run(play())
