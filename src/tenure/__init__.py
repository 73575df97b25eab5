"""Tenure: every operation on an agent finishes or is undone, and says honestly which.

What a plan is made of stands here; a plane is started by `tenure.wiring.running` and asked by the
functions of `tenure.app.operations.commands`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.core.endings import Absent, Done, NotYet, Waiting
    from tenure.core.errors import OutcomeUnknown, Rejected, Unavailable
    from tenure.core.limits import StepLimits
    from tenure.core.plan import Plan, Step, StepKind, nobody_knows, nothing, repeat
    from tenure.plans.steps import provided
    from tenure.ports.provider import Call

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "Call",
    "Done",
    "NotYet",
    "OutcomeUnknown",
    "Plan",
    "Rejected",
    "Step",
    "StepKind",
    "StepLimits",
    "Unavailable",
    "Waiting",
    "__version__",
    "nobody_knows",
    "nothing",
    "provided",
    "repeat",
]

_HOMES = {
    "tenure.core.endings": ("Absent", "Done", "NotYet", "Waiting"),
    "tenure.core.errors": ("OutcomeUnknown", "Rejected", "Unavailable"),
    "tenure.core.limits": ("StepLimits",),
    "tenure.core.plan": ("StepKind", "Plan", "Step", "nobody_knows", "nothing", "repeat"),
    "tenure.plans.steps": ("provided",),
    "tenure.ports.provider": ("Call",),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: the command line asks for none."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'tenure' has no attribute {name!r}")
