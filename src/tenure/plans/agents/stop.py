"""Stop an agent at once: revoke its credentials, kill its runtimes, and only then take the lock.

It cannot be cancelled.  The agent ends SUSPENDED, and a resume makes it READY again.
"""

from tenure.core.agent import AgentState, AgentTrigger
from tenure.core.endings import Done, Ending
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepKind, repeat
from tenure.core.verb import LifecycleVerb, VerbName
from tenure.plans.agents import steps as agent_steps
from tenure.plans.agents.inputs import VerbInput, VerbOptions
from tenure.plans.steps import end_unless_foreign
from tenure.ports.provider import Call


async def _kill(call: Call) -> Ending:
    """Kill every runtime that was known when the stop was accepted; a later step removes others."""
    values: VerbInput = call.input
    for held in values.runtimes:
        runtime, key = agent_steps.runtime_of(call), agent_steps.key_of(call, "runtime", held)
        await end_unless_foreign(runtime, key, runtime.stop)
    return Done()


class StopOptions(VerbOptions, frozen=True, kw_only=True):
    """The options of a stop: none that a caller can choose."""

    keep_runtime: bool = False


VERB = LifecycleVerb(
    VerbName.STOP,
    accept_trigger=AgentTrigger.STOP,
    during=AgentState.SUSPENDING,
    triggers={
        OperationState.SUCCEEDED: AgentTrigger.SUSPEND_DONE,
        OperationState.ABANDONED: AgentTrigger.SUSPEND_DONE,
    },
    audit="agent.stop",
    options=StopOptions,
    closes=True,
    can_queue=False,  # it revokes before it has the lock
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.close(StepKind.RETRIABLE),
        Step("killed", _kill, None, repeat, kind=StepKind.RETRIABLE, provider="runtime"),
        agent_steps.acquire_lock(StepKind.RETRIABLE),
        agent_steps.remove_held("runtime", "runtime"),
    ),
)
