"""Tenure: every operation on an agent finishes or is undone, and says honestly which.

What a plan is made of stands here; a plane is started by `tenure.wiring.running` and asked by the
functions of `tenure.app.operations`.
"""

from tenure.core.endings import Absent, Done, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
from tenure.core.limits import StepLimits
from tenure.core.plan import Kind, Plan, Step, nobody_knows, nothing, repeat
from tenure.plans.steps import provided
from tenure.ports.provider import Call

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "Call",
    "Done",
    "Kind",
    "NotYet",
    "OutcomeUnknown",
    "Plan",
    "Rejected",
    "Step",
    "StepLimits",
    "Unavailable",
    "Waiting",
    "__version__",
    "nobody_knows",
    "nothing",
    "provided",
    "repeat",
]
