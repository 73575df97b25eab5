"""Recover an agent whose runtime died: a new one under a new key, and only then the old one goes.

The agent stays READY: until the new runtime answers it is reached in vain, and then at once.  Its
identity, access and credentials are untouched.  If the new one does not come up nothing has
changed, and the old one's log is still there to be read.
"""

from tenure.core.endings import Done, Ending
from tenure.core.plan import Kind, Plan, Step, repeat
from tenure.plans import agents
from tenure.plans.create_agent import runtime_step
from tenure.ports.provider import Call
from tenure.ports.roster import ROSTER


async def _switch(call: Call) -> Ending:
    """From here on the agent is reached at its new runtime, whatever becomes of the old one."""
    roster = agents.roster_of(call)
    await roster.serve_from(call.key.agent, call.operation, agents.said(call, "runtime"))
    return Done()



PLAN = Plan(
    "recover_runtime",
    stages=(
        agents.turn(),
        runtime_step(),
        agents.ready(),
        Step("exposed", _switch, None, repeat, kind=Kind.PIVOT, provider=ROSTER),
        agents.removed("replaced", "runtime"),
    ),
)
