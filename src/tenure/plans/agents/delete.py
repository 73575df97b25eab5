"""Delete an agent: drain it, revoke its credentials, delete agents it owns, remove its resources.

The agent is closed when the verb is accepted.  The pivot is the step that revokes, as that cannot
be undone: after it the operation only goes forward.
"""

from msgspec import UNSET, UnsetType, field

from tenure.core.agent import AgentState, AgentTrigger
from tenure.core.endings import Done, Ending, NotYet
from tenure.core.limits import NO_DEADLINE_SECONDS, StepLimits
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepKind, repeat
from tenure.core.verb import LifecycleVerb, VerbName
from tenure.plans.agents import steps as agent_steps
from tenure.plans.agents.inputs import VerbInput, VerbOptions
from tenure.ports.provider import Call

EACH_SECONDS = 0.0005
"""Added to the poll interval for each agent that remains, as each poll reads all of them."""
SOON_SECONDS = 0.01
"""When the step is called again, if it has not requested every deletion yet."""


class DeleteOptions(VerbOptions, frozen=True, kw_only=True):
    """The options of a delete."""

    drain_seconds: float | UnsetType | None = None
    retention: str | UnsetType | None = None
    cascade_operation: str | UnsetType = field(default=UNSET, name="cascade")
    """The operation that deletes an owner of the agent, and walks the graph of owners for both."""


class DeleteInput(VerbInput, frozen=True, kw_only=True):
    """The input of a delete."""

    cascade_operation: str = field(default="", name="cascade")
    """The operation that deletes an owner of the agent; empty: a caller requested this delete."""


async def _delete_owned(call: Call) -> Ending:
    """Release what else it owns at once, request the deletion of the agents, and wait for them."""
    plane = agent_steps.plane_of(call)
    remaining, has_unrequested = await plane.delete_owned(call.key.agent, call.operation)
    if not remaining:
        return Done()
    if has_unrequested:
        return NotYet(SOON_SECONDS, f"requests the deletion of {len(remaining)} agents")
    others = (
        f" and {len(remaining) - agent_steps.NAMES_MAX} more"
        if len(remaining) > agent_steps.NAMES_MAX
        else ""
    )
    poll_seconds = max(agent_steps.POLL_SECONDS, len(remaining) * EACH_SECONDS)
    return NotYet(
        poll_seconds, f"waits for {', '.join(remaining[: agent_steps.NAMES_MAX])}{others}"
    )


VERB = LifecycleVerb(
    VerbName.DELETE,
    accept_trigger=AgentTrigger.DELETE,
    during=AgentState.DELETING,
    during_stuck=AgentState.DELETE_FAILED,
    triggers={
        OperationState.SUCCEEDED: AgentTrigger.RESOURCES_GONE,
        OperationState.STUCK: AgentTrigger.DELETE_STUCK,
        OperationState.ABANDONED: AgentTrigger.DELETE_STUCK,
        OperationState.RUNNING: AgentTrigger.DELETE_RETRIED,
    },
    audit="agent.delete",
    options=DeleteOptions,
    input=DeleteInput,
    closes=True,
    releases=True,
    # In a cascade the edges to its owners stay: the cascade finds the agent by them.
    drops_owner_edges=lambda options: not options.cascade_operation,
    waits_for="agent.deleting",
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.acquire_lock(),
        agent_steps.drain(),
        agent_steps.close(StepKind.PIVOT),
        Step(
            "sub_agents",
            _delete_owned,
            None,
            repeat,
            kind=StepKind.RETRIABLE,
            limits=StepLimits(deadline_seconds=NO_DEADLINE_SECONDS),
        ),
        agent_steps.remove_held("credentials", "credentials"),
        agent_steps.remove_held("access", "access"),
        agent_steps.remove_held("runtime", "runtime"),
        agent_steps.remove_held("identity", "identity"),
        agent_steps.await_acknowledgements(),
    ),
)
