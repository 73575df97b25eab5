"""Create an agent: identity, access, a runtime that answers, credentials; exposed last."""

from collections.abc import Callable
from typing import cast

from tenure.core.agent import AgentState, AgentTrigger, Verb
from tenure.core.endings import Done, Ending
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step
from tenure.core.verb import LifecycleVerb
from tenure.plans.agents import steps as agent_steps
from tenure.plans.steps import provided
from tenure.ports.provider import Call, Spec


def runtime_step(spec: Callable[[Call], Spec] = agent_steps.runtime_spec) -> Step:
    """The runtime, with its key in the result: that is how it is found later."""
    made = provided("runtime", "runtime", spec=spec)

    async def ensure(call: Call) -> Ending:
        return _with_key(call, await made.do(call))

    async def inspect(call: Call) -> Ending:
        return _with_key(call, await made.inspect(call))  # type: ignore[operator, misc]

    return Step("runtime", ensure, made.undo, inspect, slot="runtime", provider="runtime")


def _with_key(call: Call, ending: object) -> Ending:
    if isinstance(ending, Done):
        reference = cast("dict[str, object]", ending.result)
        return Done({**reference, "key": call.key.text, "generation": call.key.generation})
    return cast(Ending, ending)


VERB = LifecycleVerb(
    Verb.CREATE,
    during=AgentState.CREATING,
    ends={
        OperationState.SUCCEEDED: AgentTrigger.CREATED,
        OperationState.COMPENSATED: AgentTrigger.CREATE_ABORTED,
        OperationState.ABANDONED: AgentTrigger.CREATE_ABORTED,
    },
    audit="agent.create",
    starts_runtime=True,
    can_queue=False,
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        provided("identity", "identity", spec=agent_steps.identity_spec),
        provided("access", "access", spec=agent_steps.access_spec),
        runtime_step(),
        agent_steps.ready(),
        provided("credentials", "credentials", spec=agent_steps.credentials_spec),
        agent_steps.EXPOSED,
    ),
)
