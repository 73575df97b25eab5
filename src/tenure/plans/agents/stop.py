"""Stop an agent at once: revoke first, then fence, then kill; nothing waits for another operation.

Only forward.  It ends SUSPENDED; a resume brings it back.
"""

from typing import Any, cast

from tenure.core.agent import AgentState, AgentTrigger, Verb
from tenure.core.endings import Done, Ending
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepKind, repeat
from tenure.core.verb import LifecycleVerb
from tenure.plans.agents import steps as agent_steps
from tenure.plans.steps import unless_foreign
from tenure.ports.provider import Call


async def _kill(call: Call) -> Ending:
    """Every runtime that was known when the stop was accepted; a later one is removed below."""
    for held in cast("list[dict[str, Any]]", call.input["runtimes"]):
        runtime, key = agent_steps.runtime_of(call), agent_steps.key_of(call, "runtime", held)
        await unless_foreign(runtime, key, runtime.stop)
    return Done()


VERB = LifecycleVerb(
    Verb.STOP,
    request=AgentTrigger.STOP,
    during=AgentState.SUSPENDING,
    ends={
        OperationState.SUCCEEDED: AgentTrigger.DRAINED,
        OperationState.ABANDONED: AgentTrigger.DRAINED,
    },
    audit="agent.stop",
    closes=True,
    can_queue=False,  # it revokes before it has the lock
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.closed(StepKind.RETRIABLE),
        Step("killed", _kill, None, repeat, kind=StepKind.RETRIABLE, provider="runtime"),
        agent_steps.turn(StepKind.RETRIABLE),
        agent_steps.removed("runtime", "runtime"),
    ),
)
