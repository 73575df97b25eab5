"""Recover an agent whose runtime died: start a new one under a new key, then remove the old one.

The agent stays READY, but invocations fail until the new runtime answers.  Its identity, access and
credentials are untouched, and the new runtime goes on with the state of the old one.  If the new
one does not become ready nothing has changed, and the log of the old one can still be read.
"""

from tenure.core.agent import AgentState, AgentTrigger
from tenure.core.endings import Done, Ending
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepKind, repeat
from tenure.core.verb import LifecycleVerb, VerbName
from tenure.plans.agents import steps as agent_steps
from tenure.plans.agents.create import runtime_step
from tenure.ports.provider import Call, Spec


def _with_state(call: Call) -> Spec:
    """The runtime's spec, and the keys of the runtimes whose state it takes over, newest first."""
    held = sorted(agent_steps.held_resources(call, "runtime"), key=lambda one: -one.generation)
    return {**agent_steps.runtime_spec(call), "state_of": [one.key for one in held]}


async def _switch(call: Call) -> Ending:
    """Pass invocations to the new runtime from now on, whatever happens to the old one."""
    started = agent_steps.result_of(call, agent_steps.RUNTIME_STEP)
    await agent_steps.plane_of(call).serve_from(call.key.agent, call.operation, started)
    return Done()


VERB = LifecycleVerb(
    VerbName.RECOVER,
    accept_trigger=AgentTrigger.RECOVER,
    during=AgentState.READY,
    triggers={OperationState.SUCCEEDED: AgentTrigger.RECOVERED},
    audit="agent.recover",
    starts_runtime=True,
    needs_open_owner=True,
    is_announced=False,  # the agent stays in its state
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.acquire_lock(),
        runtime_step(_with_state),
        agent_steps.await_ready(),
        Step("exposed", _switch, None, repeat, kind=StepKind.PIVOT),
        agent_steps.remove_held("replaced", "runtime"),
    ),
)
