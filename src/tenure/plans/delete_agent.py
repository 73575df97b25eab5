"""Delete an agent: it is closed already; drain it, revoke, delete what it owns, take all away.

The pivot is the first thing that cannot be taken back: what was handed out is revoked, and nothing
is minted any more.  From there on there is only forward.
"""

from tenure.core.endings import Done, Ending, NotYet
from tenure.core.limits import StepLimits
from tenure.core.plan import Kind, Plan, Step, repeat
from tenure.plans import agents
from tenure.ports.provider import Call
from tenure.ports.roster import ROSTER


async def _delete_owned(call: Call) -> Ending:
    left = await agents.roster_of(call).delete_owned(call.key.agent, call.operation)
    if not left:
        return Done()
    more = f" and {len(left) - agents.NAMED_MAX} more" if len(left) > agents.NAMED_MAX else ""
    return NotYet(agents.POLL_SECONDS, f"waits for {', '.join(left[:agents.NAMED_MAX])}{more}")


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
            limits=StepLimits(deadline_seconds=agents.YEARS),
            provider=ROSTER,
        ),
        agents.removed("credentials", "credentials"),
        agents.removed("access", "access"),
        agents.removed("runtime", "runtime"),
        agents.removed("identity", "identity"),
        agents.acknowledged(),
    ),
)
