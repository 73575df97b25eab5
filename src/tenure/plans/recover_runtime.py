"""Recover an agent whose runtime died: a new one under a new key, and only then the old one goes.

The agent stays READY: until the new runtime answers it is reached in vain, and then at once.  Its
identity, access and credentials are untouched, and the new one goes on with the state of the old.
If it does not come up nothing has changed: the state is back, and the old one's log can be read.
"""

from tenure.core.endings import Done, Ending
from tenure.core.plan import Kind, Plan, Step, repeat
from tenure.plans import agents
from tenure.plans.create_agent import runtime_step
from tenure.ports.provider import Call, Spec
from tenure.ports.roster import ROSTER


def _with_state(call: Call) -> Spec:
    """What a runtime is told, and whose state it goes on with: the newest that the agent had."""
    held = sorted(agents.held_in(call, "runtime"), key=lambda one: -int(one["generation"]))
    return {**agents.runtime_spec(call), "state_of": [str(one["key"]) for one in held]}


async def _switch(call: Call) -> Ending:
    """From here on the agent is reached at its new runtime, whatever becomes of the old one."""
    roster = agents.roster_of(call)
    await roster.serve_from(call.key.agent, call.operation, agents.said(call, "runtime"))
    return Done()


PLAN = Plan(
    "recover_runtime",
    stages=(
        agents.turn(),
        runtime_step(_with_state),
        agents.ready(),
        Step("exposed", _switch, None, repeat, kind=Kind.PIVOT, provider=ROSTER),
        agents.removed("replaced", "runtime"),
    ),
)
