"""Resume an agent: the runtime that was kept, or one under a new key; credentials; exposed last."""

from typing import cast

from tenure.core.agent import AgentState, AgentTrigger, Verb
from tenure.core.endings import Done, Ending
from tenure.core.errors import Rejected
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepFunction, nothing, repeat
from tenure.core.verb import LifecycleVerb
from tenure.plans.agents import steps as agent_steps
from tenure.plans.agents.create import runtime_step
from tenure.ports.provider import Call, Presence


async def _look_for_kept(call: Call) -> Ending:
    """The newest runtime that lives; those that do not are removed.

    A step of its own, so that whether one is made is decided once and not at every attempt.
    """
    runtime = agent_steps.runtime_of(call)
    kept: dict[str, object] | None = None
    gone: list[tuple[str, str]] = []
    for held in agent_steps.held_in(call, "runtime"):
        key = agent_steps.key_of(call, "runtime", held)
        observed = await runtime.inspect(key)
        alive = observed.presence in {Presence.READY, Presence.STARTING}
        if alive and kept is None:
            named = {"key": key.text, "generation": key.generation, "step": key.name}
            kept = {**observed.reference, **named, "kept": True}
        elif observed.presence is not Presence.FOREIGN:
            try:
                await runtime.remove(key)
            except Rejected:
                continue  # it stays among what the agent holds, and is removed with it
            gone.append((held["operation"], held["step"]))
    return Done({"kept": kept}, burned=tuple(gone))


def _runtime() -> Step:
    """The runtime that was kept, or a new one; the undo removes only what this operation made."""
    made = runtime_step()

    async def ensure(call: Call) -> Ending:
        return _kept(call) or cast(Ending, await made.do(call))

    async def inspect(call: Call) -> Ending:
        look = cast(StepFunction, made.inspect)
        return _kept(call) or cast(Ending, await look(call))

    return Step("runtime", ensure, made.undo, inspect, slot="runtime", provider="runtime")


def _kept(call: Call) -> Ending | None:
    kept = agent_steps.said(call, "kept")["kept"]
    return Done({**kept, "instead_of": call.key.text}) if kept else None


VERB = LifecycleVerb(
    Verb.RESUME,
    request=AgentTrigger.RESUME,
    during=AgentState.RESUMING,
    ends={
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
        agent_steps.turn(),
        Step("kept", _look_for_kept, nothing, repeat, provider="runtime"),
        _runtime(),
        agent_steps.ready(),
        agent_steps.opened(),
        agent_steps.EXPOSED,
    ),
)
