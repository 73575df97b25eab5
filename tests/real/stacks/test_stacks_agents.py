"""Promises about agents on each stack: P3, P4, P13, P17, P18, P20 and P21.

Goal: they do not depend on where a plane keeps its operations and what moves them. Method: the
product's plans over a world of fakes, on real servers and in real time; what counts is what the
world holds, what arrives at a receiver, and what a stranger can see. The cases are few, since the
mass of them is run by `make prove`; each promise is broken once on each stack by taking out a
safeguard that it rests on.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from http.client import HTTPConnection
from typing import Any

import pytest

from proofs.agents import ablations as agent_ablations
from proofs.agents.lifecycle import CALLER, spec_of
from proofs.agents.promises import across, harms
from proofs.events.invariants import violations
from proofs.events.workload import SINK
from proofs.subjects import ABLATIONS
from tenure.adapters.bus.local import LocalBus
from tenure.adapters.clock.system import SystemClock
from tenure.app.agents import commands as agents
from tenure.app.agents import invocations
from tenure.app.operations import reads
from tenure.app.tenancy import audit, tokens
from tenure.core.errors import CallerError
from tenure.core.ids import resource_key
from tenure.core.operation import OperationState
from tenure.core.records import AuditRecord, CursorRecord
from tenure.core.records.table import dict_of
from tenure.core.roles import Role
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import Relay
from tenure.faces.http import bounds
from tenure.faces.http.bounds import Bounds
from tenure.faces.http.server import Listen, serving
from tenure.faces.http.state import HttpState
from tenure.ports.bus import Destination, Outgoing
from tenure.reconcilers import orphans
from tenure.reconcilers.driver import Driver, ReconcilePolicy
from tenure.testing.patches import patched
from tests.real.support.agents_on_stack import END_SECONDS, AgentStack, open_agent_stack
from tests.real.support.stacks import PAGE, Stack

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]
APART_SECONDS = 0.1
LOOKS = 6
BOUNDS = Bounds(requests_per_second=0.01, requests_at_once=8)
BURST_SECONDS = 400.0
"""A bucket holds four requests, and not one comes into it while the flood lasts."""
FLOOD = 40
OPERATOR = Role.OPERATOR
Cases = list[tuple[str, list[str]]]
"""What was tried, and what was wrong then."""


async def no_orphans(stage: AgentStack) -> Cases:
    """P3: what turns up late and what nobody remembers goes; what lives stays."""
    await stage.make("alpha")
    forgotten = await stage.leave("forgotten")
    late = await stage.leave("late", is_watched=True)
    living = stage.world.things.keys() - {forgotten, late}
    driver = Driver(stage.plane, clock=SystemClock(), policy=ReconcilePolicy())
    with patched(orphans, GRACE_SECONDS=0.0, APART_SECONDS=APART_SECONDS):
        for _ in range(LOOKS):
            await driver.run_now("", False)
            await asyncio.sleep(APART_SECONDS)  # the time that must lie between two sightings
    left = stage.world.things.keys()
    return [
        ("what nobody remembers", ["it is still there"] if forgotten in left else []),
        ("what came late", ["it is still there"] if late in left else []),
        ("what lives", [] if living <= left else ["it is gone"]),
    ]


async def no_false_deletion(stage: AgentStack) -> Cases:
    """P4: not what is unknown, newer, another's, young, or was seen but once."""
    (uid,) = await stage.make("alpha")
    once = await stage.leave("once")
    young = await stage.leave("young")
    stage.put(stage.world.things[young], since=time.time() + 3_600.0)
    there = {"young": young, "seen once": once}
    for what, agent, generation, owner in (
        ("unknown", "f" * 32, 1, stage.plane.id), ("newer", uid, 9, stage.plane.id),
        ("another's", "e" * 32, 1, "another"),
    ):  # fmt: skip
        key = resource_key(
            stage.plane.id, tenant="default", agent=agent, generation=generation, slot="runtime",
            name="x",
        )  # fmt: skip
        stage.world.plant("runtime", key, owner=owner)
        stage.world.things["runtime", key.text].key = key
        there[what] = ("runtime", key.text)
    living = {at for at in stage.world.things if at not in there.values()}
    await orphans.tick(stage.plane)
    after_one = set(stage.world.things)
    stage.world.things.pop(once, None)  # it has had its one sighting
    with patched(orphans, APART_SECONDS=APART_SECONDS):
        for _ in range(LOOKS):
            await orphans.tick(stage.plane)
            await asyncio.sleep(APART_SECONDS)
    left = stage.world.things.keys() | (after_one & {once})
    return [
        *((what, [] if at in left else ["it was deleted"]) for what, at in there.items()),
        ("what lives", [] if living <= left else ["it was deleted"]),
    ]


async def closes_first(stage: AgentStack) -> Cases:
    """P13: from the acknowledgement on nothing is served, minted or owned."""
    plane = stage.plane
    (uid,) = await stage.make("alpha")
    await stage.make("beta", parent="alpha")
    served = await _is_let(invocations.address_of(plane, CALLER, "alpha"))
    results: Cases = [("an open agent", [] if served else ["it is not served"])]
    await agents.suspend_agent(plane, CALLER, "alpha")
    served = await _is_let(invocations.address_of(plane, CALLER, "alpha"))
    results.append(("a suspend", ["it is served after that"] if served else []))
    await stage.rest()
    minted = stage.fakes.credentials.door.is_open(uid)
    results.append(("a suspended agent", ["something is minted for it"] if minted else []))
    await stage.verb("resume", "alpha")
    await agents.delete_agent(plane, CALLER, "alpha")
    served = await _is_let(invocations.address_of(plane, CALLER, "alpha"))
    results.append(("a delete", ["it is served after that"] if served else []))
    child = agents.create_agent(plane, CALLER, spec_of("gamma", parent="alpha"))
    results.append(("a child of it", ["it was accepted"] if await _is_let(child) else []))
    await stage.rest()
    left = sorted(stage.world.things)
    results.append(("what it owned", [f"{left} are left"] if left else []))
    return results


async def _is_let(request: Awaitable[object]) -> bool:
    try:
        await request
    except CallerError:
        return False
    return True


async def events_get_out(stage: AgentStack) -> Cases:
    """P17: every event arrives, each agent's in order, though the receiver is away at first."""
    await stage.make("alpha", "beta")
    await stage.verb("suspend", "alpha")
    await stage.verb("delete", "beta")
    await stage.verb("resume", "alpha")
    rows = await stage.events()
    arrived: list[Outgoing] = []
    away = 2

    async def take(event: Outgoing) -> None:
        nonlocal away
        if away:
            away -= 1
            raise ConnectionError("nobody is there")
        arrived.append(event)

    route = DestinationRoute(Destination(SINK, SINK), LocalBus({SINK: take}))
    carrying = asyncio.ensure_future(Relay(stage.plane, buses={}, fixed_routes=[route]).run())
    until = time.monotonic() + END_SECONDS
    last = rows[-1].position
    while time.monotonic() < until:
        await asyncio.sleep(0.05)
        cursor = await stage.store.find(CursorRecord, (SINK,))
        if cursor is not None and cursor.position == last:
            break
    carrying.cancel()
    await asyncio.gather(carrying, return_exceptions=True)
    wrong = violations(arrived, rows)
    return [(f"event {number}", wrong) for number in range(len(rows))]


async def tenants_are_apart(stage: AgentStack) -> Cases:
    """P18: another's object is as absent as one that never was."""
    checks = await across(stage.plane, stage.store, stage.rest)
    return [(check.again, check.wrong) for check in checks]


async def audit_tells(stage: AgentStack) -> Cases:
    """P20: whatever is done to the log in the database is found."""
    await stage.make("alpha")
    await stage.verb("delete", "alpha")
    rows = await stage.store.list_rows(AuditRecord, {}, limit=PAGE)
    whole = {(row.position,): dict_of(row) for row in rows}
    verdict = await audit.verify(stage.plane)
    results: Cases = [("untouched", [] if verdict.broken is None else [str(verdict)])]
    for what, position, harmed in harms(whole):
        await stage.write_audit(harmed)
        seen = (await audit.verify(stage.plane, head=verdict.head)).broken
        results.append((f"{what} at {position}", [] if seen is not None else ["it was not found"]))
    return results


async def flood_is_bounded(stage: AgentStack) -> Cases:
    """P21: of a flood of creates what is accepted ends, the rest was never there; another is fine.

    The slow clients of P21 never reach a stack: the face cuts them off on its own.
    """
    loud, quiet = [
        (await tokens.create_token(stage.plane, CALLER, tenant=t, principal="p", role=OPERATOR))[1]
        for t in ("loud", "quiet")
    ]
    seen: Counter[int] = Counter()
    accepted: list[str] = []
    with patched(bounds, BURST_SECONDS=BURST_SECONDS):
        http_state = HttpState(stage.plane, bounds=BOUNDS)
    async with serving(http_state, Listen(port=0)) as address:
        for number in range(FLOOD):
            spec = {
                "name": f"agent-{number}", "roles": ["reader"],
                "runtime": {"command": ["agent"], "ready_seconds": 60.0},
                "credentials": [{"audience": "https://tool", "scopes": ["tool:use"]}],
            }  # fmt: skip
            status, body = await asyncio.to_thread(ask, address, loud, spec)
            seen[status] += 1
            accepted += [body["id"]] if status == 202 else []
        polite, _ = await asyncio.to_thread(ask, address, quiet, None)
    wait = partial(reads.wait, stage.plane, "loud", seconds=END_SECONDS)
    ends = [await wait(name) for name in accepted]
    held = Counter(thing.key.agent for thing in stage.world.things.values())
    whole = set(seen) == {202, 429} and all(end.state == OperationState.SUCCEEDED for end in ends)
    exact = len(held) == len(accepted) and set(held.values()) == {4}
    wrong = [] if whole and exact else [f"answered {dict(seen)}, {len(held)} agents hold"]
    return [
        *((f"create {number}", wrong) for number in range(FLOOD)),
        ("another tenant", [] if polite == 200 else [f"it was answered {polite}"]),
    ]


def ask(address: str, token: str, spec: object) -> tuple[int, Any]:
    """Create this agent, or list all."""
    host = address.removeprefix("http://")
    connection = HTTPConnection(host, timeout=60)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        body = None if spec is None else json.dumps(spec)
        connection.request("POST" if body else "GET", "/v1/agents", body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


CHECKS: dict[int, Callable[[AgentStack], Awaitable[Cases]]] = {
    3: no_orphans, 4: no_false_deletion, 13: closes_first, 17: events_get_out,
    18: tenants_are_apart, 20: audit_tells, 21: flood_is_bounded,
}  # fmt: skip
OFF: dict[int, Callable[[], AbstractContextManager[None]]] = {
    3: ABLATIONS["reconciler_late"].off,
    4: ABLATIONS["seen_twice"].off,
    13: agent_ablations.admissions(agent_ablations.closed_later),
    17: ABLATIONS["one_of_an_agent_at_a_time"].off,
    18: ABLATIONS["agent_of_tenant"].off,
    20: ABLATIONS["head_compared"].off,
    21: ABLATIONS["allowance_ends"].off,
}
"""A safeguard that each of them rests on, taken out."""


def results(promise: int, stack: Stack) -> Cases:
    async def main() -> Cases:
        async with open_agent_stack(stack) as stage:
            return await CHECKS[promise](stage)

    return asyncio.run(main())


@pytest.mark.parametrize("promise", CHECKS)
def test_a_promise_about_agents_holds_on_a_stack(promise, stack, tally):
    cases = results(promise, stack)
    wrong = [f"{what}: {sentence}" for what, found in cases for sentence in found]
    assert not wrong, "\n".join(wrong[:10])
    assert cases
    tally.add(f"promise_{promise}_on_{stack.name}", len(cases))


@pytest.mark.parametrize("promise", CHECKS)
def test_ablation_without_its_safeguard_it_is_seen_to_break(promise, stack, tally):
    with OFF[promise]():
        cases = results(promise, stack)
    assert any(found for _, found in cases)
    tally.add("ablations")
