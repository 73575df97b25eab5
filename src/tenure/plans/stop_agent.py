"""Stop an agent at once: revoke first, then fence, then kill; nothing waits for another operation.

Only forward.  It ends SUSPENDED; a resume brings it back.
"""

from typing import Any, cast

from tenure.core.endings import Done, Ending
from tenure.core.plan import Kind, Plan, Step, repeat
from tenure.plans import agents
from tenure.plans.steps import unless_foreign
from tenure.ports.provider import Call


async def _kill(call: Call) -> Ending:
    """Every runtime that was known when the stop was accepted; a later one is removed below."""
    for held in cast("list[dict[str, Any]]", call.input["runtimes"]):
        runtime, key = agents.runtime_of(call), agents.key_of(call, "runtime", held)
        await unless_foreign(runtime, key, runtime.stop)
    return Done()


PLAN = Plan(
    "stop_agent",
    stages=(
        agents.closed(Kind.RETRIABLE),
        Step("killed", _kill, None, repeat, kind=Kind.RETRIABLE, provider="runtime"),
        agents.turn(Kind.RETRIABLE),
        agents.removed("runtime", "runtime"),
    ),
)
