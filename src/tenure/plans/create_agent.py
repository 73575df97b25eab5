"""Create an agent: identity, access, a runtime that answers, credentials; exposed last."""

from collections.abc import Callable
from typing import cast

from tenure.core.endings import Done, Ending
from tenure.core.plan import Plan, Step
from tenure.plans import agents
from tenure.plans.steps import provided
from tenure.ports.provider import Call, Spec


def runtime_step(spec: Callable[[Call], Spec] = agents.runtime_spec) -> Step:
    """The runtime, with its key in the result: that is how it is found later."""
    made = provided("runtime", "runtime", spec=spec)

    async def ensure(call: Call) -> Ending:
        return _with_key(call, await made.do(call))

    async def inspect(call: Call) -> Ending:
        return _with_key(call, await made.inspect(call))  # type: ignore[operator, misc]

    return Step(
        "runtime", ensure, made.undo, inspect, slot="runtime", provider="runtime"
    )


def _with_key(call: Call, ending: object) -> Ending:
    if isinstance(ending, Done):
        reference = cast("dict[str, object]", ending.result)
        return Done({**reference, "key": call.key.text, "generation": call.key.generation})
    return cast(Ending, ending)


PLAN = Plan(
    "create_agent",
    stages=(
        provided("identity", "identity", spec=agents.identity_spec),
        provided("access", "access", spec=agents.access_spec),
        runtime_step(),
        agents.ready(),
        provided("credentials", "credentials", spec=agents.credentials_spec),
        agents.EXPOSED,
    ),
)
