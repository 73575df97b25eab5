"""Suspend an agent: it is closed already; drain it, shut its credentials, free its runtime.

Identity and access stay.  It can be cancelled until its credentials are being shut.
"""

from tenure.core.plan import Kind, Plan
from tenure.plans import agents

PLAN = Plan(
    "suspend_agent",
    stages=(
        agents.turn(),
        agents.drained(),
        agents.closed(Kind.PIVOT),
        agents.removed("runtime", "runtime", unless=lambda call: bool(call.input["keep_runtime"])),
        agents.acknowledged(),
    ),
)
