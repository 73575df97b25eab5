"""Delete an agent: it is closed already; drain it, revoke, delete what it owns, take all away.

The pivot is the first thing that cannot be taken back: what was handed out is revoked, and nothing
is minted any more.  From there on there is only forward.
"""

from tenure.core.agent import AgentState, AgentTrigger, Verb
from tenure.core.endings import Done, Ending, NotYet
from tenure.core.limits import YEARS, StepLimits
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepKind, repeat
from tenure.core.verb import LifecycleVerb
from tenure.plans.agents import steps as agent_steps
from tenure.ports.provider import Call

EACH_SECONDS = 0.0005
"""How much longer a look waits for each agent that is left: it reads them all."""
SOON_SECONDS = 0.01


async def _delete_owned(call: Call) -> Ending:
    """What was granted by the agent is revoked at once; agents that it owned are waited for."""
    left, more = await call.plane.delete_owned(call.key.agent, call.operation)
    if not left:
        return Done()
    if more:
        return NotYet(SOON_SECONDS, f"asks for {len(left)} agents to be deleted")
    rest = (
        f" and {len(left) - agent_steps.NAMED_MAX} more"
        if len(left) > agent_steps.NAMED_MAX
        else ""
    )
    pause = max(agent_steps.POLL_SECONDS, len(left) * EACH_SECONDS)
    return NotYet(pause, f"waits for {', '.join(left[: agent_steps.NAMED_MAX])}{rest}")


VERB = LifecycleVerb(
    Verb.DELETE,
    request=AgentTrigger.DELETE,
    during=AgentState.DELETING,
    during_stuck=AgentState.DELETE_FAILED,
    ends={
        OperationState.SUCCEEDED: AgentTrigger.RESOURCES_GONE,
        OperationState.STUCK: AgentTrigger.DELETE_STUCK,
        OperationState.ABANDONED: AgentTrigger.DELETE_STUCK,
        OperationState.RUNNING: AgentTrigger.DELETE_RETRIED,
    },
    audit="agent.delete",
    closes=True,
    waits_for="agent.deleting",
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.turn(),
        agent_steps.drained(),
        agent_steps.closed(StepKind.PIVOT),
        Step(
            "sub_agents",
            _delete_owned,
            None,
            repeat,
            kind=StepKind.RETRIABLE,
            limits=StepLimits(deadline_seconds=YEARS),
        ),
        agent_steps.removed("credentials", "credentials"),
        agent_steps.removed("access", "access"),
        agent_steps.removed("runtime", "runtime"),
        agent_steps.removed("identity", "identity"),
        agent_steps.acknowledged(),
    ),
)
