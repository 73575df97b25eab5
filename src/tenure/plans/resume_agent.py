"""Resume an agent: a runtime under a new key unless one was kept, credentials, exposed last."""

from typing import cast

from tenure.core.endings import Done, Ending
from tenure.core.plan import Perform, Plan, Step
from tenure.plans import agents
from tenure.plans.create_agent import runtime_step
from tenure.ports.provider import Call, Presence


def _runtime() -> Step:
    """The runtime that was kept, or a new one; the undo removes only what this operation made."""
    made = runtime_step()

    async def ensure(call: Call) -> Ending:
        return await _kept(call) or cast(Ending, await made.do(call))

    async def inspect(call: Call) -> Ending:
        look = cast(Perform, made.inspect)
        return await _kept(call) or cast(Ending, await look(call))

    return Step("runtime", ensure, made.undo, inspect, slot="runtime", provider="runtime")


async def _kept(call: Call) -> Ending | None:
    for held in agents.held_in(call, "runtime"):
        key = agents.key_of(call, "runtime", held)
        observed = await agents.runtime_of(call).inspect(key)
        if observed.presence is Presence.READY:
            named = {"key": key.text, "generation": key.generation, "step": key.name}
            return Done({**observed.reference, **named, "kept": True})
    return None


PLAN = Plan(
    "resume_agent",
    stages=(agents.turn(), _runtime(), agents.ready(), agents.opened(), agents.EXPOSED),
)
