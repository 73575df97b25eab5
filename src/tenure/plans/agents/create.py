"""Create an agent: its identity, access, runtime and credentials; then expose it to callers."""

from collections.abc import Callable
from typing import cast

from tenure.core.agent import AgentState, AgentTrigger
from tenure.core.endings import Done, Ending
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step
from tenure.core.verb import LifecycleVerb, VerbName
from tenure.plans.agents import steps as agent_steps
from tenure.plans.agents.inputs import AgentInput
from tenure.plans.steps import provided
from tenure.ports.provider import Call, Spec


def runtime_step(spec: Callable[[Call], Spec] = agent_steps.runtime_spec) -> Step:
    """Start a runtime; the result has its key, by which later steps find it."""
    step = provided(agent_steps.RUNTIME_STEP, "runtime", spec=spec)

    async def ensure(call: Call) -> Ending:
        return _with_key(call, await step.do(call))

    async def inspect(call: Call) -> Ending:
        return _with_key(call, await step.inspect(call))  # type: ignore[operator, misc]

    return Step(step.name, ensure, step.undo, inspect, slot="runtime", provider="runtime")


def _with_key(call: Call, ending: object) -> Ending:
    if isinstance(ending, Done):
        reference = cast("dict[str, object]", ending.result)
        return Done({**reference, "key": call.key.text, "generation": call.key.generation})
    return cast(Ending, ending)


VERB = LifecycleVerb(
    VerbName.CREATE,
    during=AgentState.CREATING,
    triggers={
        OperationState.SUCCEEDED: AgentTrigger.CREATED,
        OperationState.COMPENSATED: AgentTrigger.CREATE_ABORTED,
        OperationState.ABANDONED: AgentTrigger.CREATE_ABORTED,
    },
    audit="agent.create",
    input=AgentInput,
    starts_runtime=True,
    reserves=True,
    can_queue=False,
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        provided("identity", "identity", spec=agent_steps.identity_spec),
        provided("access", "access", spec=agent_steps.access_spec),
        runtime_step(),
        agent_steps.await_ready(),
        provided("credentials", "credentials", spec=agent_steps.credentials_spec),
        agent_steps.EXPOSE,
    ),
)
