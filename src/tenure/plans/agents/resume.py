"""Resume an agent: start or keep a runtime, open its credentials, then expose it."""

from typing import cast

import msgspec

from tenure.core.agent import AgentState, AgentTrigger
from tenure.core.endings import Done, Ending
from tenure.core.errors import Rejected
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepFunction, nothing, repeat
from tenure.core.verb import LifecycleVerb, VerbName
from tenure.plans.agents import steps as agent_steps
from tenure.plans.agents.create import runtime_step
from tenure.ports.provider import Call, Presence


async def _find_kept_runtime(call: Call) -> Ending:
    """Find the newest runtime that is alive, and remove those that are not.

    This is a step of its own, so that the decision is made once and not at every attempt.
    """
    runtime = agent_steps.runtime_of(call)
    kept: dict[str, object] | None = None
    burned: list[tuple[str, str]] = []
    for held in agent_steps.held_resources(call, "runtime"):
        key = agent_steps.key_of(call, "runtime", held)
        observed = await runtime.inspect(key)
        alive = observed.presence in {Presence.READY, Presence.STARTING}
        if alive and kept is None:
            kept = {
                **observed.reference,
                "key": key.text,
                "generation": key.generation,
                "step": key.name,
                "kept": True,
            }
        elif observed.presence is not Presence.FOREIGN:
            try:
                await runtime.remove(key)
            except Rejected:
                continue  # the agent still holds it, and it is removed with the agent
            burned.append((held.operation, held.step))
    return Done({"kept": kept}, burned=tuple(burned))


def _runtime() -> Step:
    """Go on with the kept runtime, or start one; the undo removes only a new one."""
    new = runtime_step()

    async def ensure(call: Call) -> Ending:
        return _kept_runtime(call) or cast(Ending, await new.do(call))

    async def inspect(call: Call) -> Ending:
        inspect_new = cast(StepFunction, new.inspect)
        return _kept_runtime(call) or cast(Ending, await inspect_new(call))

    return Step(new.name, ensure, new.undo, inspect, slot="runtime", provider="runtime")


def _kept_runtime(call: Call) -> Ending | None:
    found = msgspec.convert(agent_steps.result_of(call, "kept"), agent_steps.FoundRuntime)
    return Done({**found.runtime, "instead_of": call.key.text}) if found.runtime else None


VERB = LifecycleVerb(
    VerbName.RESUME,
    accept_trigger=AgentTrigger.RESUME,
    during=AgentState.RESUMING,
    triggers={
        OperationState.SUCCEEDED: AgentTrigger.RESUMED,
        OperationState.COMPENSATED: AgentTrigger.RESUME_ABORTED,
        OperationState.ABANDONED: AgentTrigger.RESUME_ABORTED,
    },
    audit="agent.resume",
    starts_runtime=True,
    needs_open_owner=True,
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.acquire_lock(),
        Step("kept", _find_kept_runtime, nothing, repeat, provider="runtime"),
        _runtime(),
        agent_steps.await_ready(),
        agent_steps.reopen(),
        agent_steps.EXPOSE,
    ),
)
