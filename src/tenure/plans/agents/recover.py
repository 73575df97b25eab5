"""Recover an agent whose runtime died: a new one under a new key, and only then the old one goes.

The agent stays READY: until the new runtime answers it is reached in vain, and then at once.  Its
identity, access and credentials are untouched, and the new one goes on with the state of the old.
If it does not come up nothing has changed: the state is back, and the old one's log can be read.
"""

from tenure.core.agent import AgentState, AgentTrigger, Verb
from tenure.core.endings import Done, Ending
from tenure.core.operation import OperationState
from tenure.core.plan import Plan, Step, StepKind, repeat
from tenure.core.verb import LifecycleVerb
from tenure.plans.agents import steps as agent_steps
from tenure.plans.agents.create import runtime_step
from tenure.ports.provider import Call, Spec


def _with_state(call: Call) -> Spec:
    """What a runtime is told, and whose state it goes on with: the newest that the agent had."""
    held = sorted(agent_steps.held_in(call, "runtime"), key=lambda one: -int(one["generation"]))
    return {**agent_steps.runtime_spec(call), "state_of": [str(one["key"]) for one in held]}


async def _switch(call: Call) -> Ending:
    """From here on the agent is reached at its new runtime, whatever becomes of the old one."""
    await call.plane.serve_from(call.key.agent, call.operation, agent_steps.said(call, "runtime"))
    return Done()


VERB = LifecycleVerb(
    Verb.RECOVER,
    request=AgentTrigger.RECOVER,
    during=AgentState.READY,
    ends={OperationState.SUCCEEDED: AgentTrigger.RECOVERED},
    audit="agent.recover",
    starts_runtime=True,
    needs_open_owner=True,
    is_announced=False,  # the agent is in no other state by that
)
PLAN = Plan(
    VERB.name.value,
    subject="agent",
    stages=(
        agent_steps.turn(),
        runtime_step(_with_state),
        agent_steps.ready(),
        Step("exposed", _switch, None, repeat, kind=StepKind.PIVOT),
        agent_steps.removed("replaced", "runtime"),
    ),
)
