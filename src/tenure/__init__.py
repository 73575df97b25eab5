"""Tenure: every operation on an agent finishes or is undone, and says honestly which.

This module is the public surface: `open_plane`, what a plan is made of, what a provider is made of,
one view of an operation, and the errors. Everything below it may move. docs/reference/python.md
describes each name.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.app.operations.views import OperationView, StepView
    from tenure.core.endings import Absent, Done, NotYet, Waiting
    from tenure.core.errors import (
        CallerError,
        CommitUnknown,
        Conflict,
        ConflictCode,
        Defect,
        EngineError,
        Forbidden,
        IllegalTransition,
        Invalid,
        LimitExceeded,
        NotFound,
        NotReady,
        OutcomeUnknown,
        PlanUnknown,
        PreconditionFailed,
        ProviderError,
        Rejected,
        RuntimeBroken,
        StoreClosed,
        StoreError,
        StoreForeign,
        StoreFull,
        StoreLocked,
        StoreNewer,
        StoreRewound,
        StoreUnsafe,
        TenureError,
        Unauthenticated,
        Unavailable,
    )
    from tenure.core.ids import ResourceKey
    from tenure.core.limits import StepLimits
    from tenure.core.operation import IntentState, OperationState
    from tenure.core.plan import Plan, Step, StepKind, nobody_knows, nothing, repeat
    from tenure.library import OpenPlane, Temporal, open_plane
    from tenure.plans.steps import provided
    from tenure.ports.provider import Call, Observation, OwnedResource, Presence, Provider

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "Call",
    "CallerError",
    "CommitUnknown",
    "Conflict",
    "ConflictCode",
    "Defect",
    "Done",
    "EngineError",
    "Forbidden",
    "IllegalTransition",
    "IntentState",
    "Invalid",
    "LimitExceeded",
    "NotFound",
    "NotReady",
    "NotYet",
    "Observation",
    "OpenPlane",
    "OperationState",
    "OperationView",
    "OutcomeUnknown",
    "OwnedResource",
    "Plan",
    "PlanUnknown",
    "PreconditionFailed",
    "Presence",
    "Provider",
    "ProviderError",
    "Rejected",
    "ResourceKey",
    "RuntimeBroken",
    "Step",
    "StepKind",
    "StepLimits",
    "StepView",
    "StoreClosed",
    "StoreError",
    "StoreForeign",
    "StoreFull",
    "StoreLocked",
    "StoreNewer",
    "StoreRewound",
    "StoreUnsafe",
    "Temporal",
    "TenureError",
    "Unauthenticated",
    "Unavailable",
    "Waiting",
    "__version__",
    "nobody_knows",
    "nothing",
    "open_plane",
    "provided",
    "repeat",
]

_MODULES = {
    "tenure.app.operations.views": ("OperationView", "StepView"),
    "tenure.core.endings": ("Absent", "Done", "NotYet", "Waiting"),
    "tenure.core.ids": ("ResourceKey",),
    "tenure.core.limits": ("StepLimits",),
    "tenure.core.operation": ("OperationState", "IntentState"),
    "tenure.core.plan": ("StepKind", "Plan", "Step", "nobody_knows", "nothing", "repeat"),
    "tenure.library": ("OpenPlane", "Temporal", "open_plane"),
    "tenure.plans.steps": ("provided",),
    "tenure.ports.provider": ("Call", "Observation", "OwnedResource", "Presence", "Provider"),
}
"""Where a public name is defined; every other name in `__all__` is one of `tenure.core.errors`."""


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: the command line uses none of them."""
    if name not in __all__:
        raise AttributeError(f"module 'tenure' has no attribute {name!r}")
    homes = (module for module, names in _MODULES.items() if name in names)
    module = import_module(next(homes, "tenure.core.errors"))
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    """The public names, also those that were not used yet."""
    return __all__
