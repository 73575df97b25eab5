"""Delete an agent: it is closed already; drain it, revoke, delete what it owns, take all away.

The pivot is the first thing that cannot be taken back: what was handed out is revoked, and nothing
is minted any more.  From there on there is only forward.
"""

from tenure.core.endings import Done, Ending, NotYet
from tenure.core.limits import YEARS, StepLimits
from tenure.core.plan import Kind, Plan, Step, repeat
from tenure.plans import agents
from tenure.ports.provider import Call
from tenure.ports.roster import ROSTER

EACH_SECONDS = 0.0005
"""How much longer a look waits for each agent that is left: it reads them all."""
SOON_SECONDS = 0.01


async def _delete_owned(call: Call) -> Ending:
    """What was granted by the agent is revoked at once; agents that it owned are waited for."""
    left, more = await agents.roster_of(call).delete_owned(call.key.agent, call.operation)
    if not left:
        return Done()
    if more:
        return NotYet(SOON_SECONDS, f"asks for {len(left)} agents to be deleted")
    rest = f" and {len(left) - agents.NAMED_MAX} more" if len(left) > agents.NAMED_MAX else ""
    pause = max(agents.POLL_SECONDS, len(left) * EACH_SECONDS)
    return NotYet(pause, f"waits for {', '.join(left[:agents.NAMED_MAX])}{rest}")


PLAN = Plan(
    "delete_agent",
    stages=(
        agents.turn(),
        agents.drained(),
        agents.closed(Kind.PIVOT),
        Step(
            "sub_agents",
            _delete_owned,
            None,
            repeat,
            kind=Kind.RETRIABLE,
            limits=StepLimits(deadline_seconds=YEARS),
            provider=ROSTER,
        ),
        agents.removed("credentials", "credentials"),
        agents.removed("access", "access"),
        agents.removed("runtime", "runtime"),
        agents.removed("identity", "identity"),
        agents.acknowledged(),
    ),
)
