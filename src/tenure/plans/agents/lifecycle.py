"""Every verb of the agent lifecycle: its declaration and its plan.

Every module of this package that has a `VERB` and a `PLAN` is a verb.
"""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Final

from tenure.core.plan import Plan
from tenure.core.verb import LifecycleVerb, VerbName
from tenure.plans import agents
from tenure.plans.agents.inputs import (
    AgentInput,
    PlainData,
    QueuedInput,
    VerbInput,
    VerbOptions,
    read_stored,
)


def _find_verbs() -> dict[VerbName, ModuleType]:
    """The module of each verb."""
    names = [module.name for module in iter_modules(agents.__path__) if module.name != "lifecycle"]
    modules = [import_module(f"{agents.__name__}.{name}") for name in names]
    return {module.VERB.name: module for module in modules if hasattr(module, "VERB")}


_MODULES: Final = _find_verbs()
PLANS: Final[tuple[Plan, ...]] = tuple(_MODULES[verb].PLAN for verb in VerbName)
VERBS: Final[Mapping[str, LifecycleVerb]] = {verb: _MODULES[verb].VERB for verb in VerbName}
"""The declaration of each verb, by the name of its plan."""
CLOSING: Final = frozenset(name for name, verb in VERBS.items() if verb.closes)
WAITED_FOR: Final = {name: verb.waits_for for name, verb in VERBS.items() if verb.waits_for}
"""The event whose required subscribers an operation waits for, by the name of its plan."""


def read_input(plan_name: str, stored: PlainData) -> AgentInput | QueuedInput:
    """The input of an operation of this verb, in the type that its steps read."""
    return read_stored(stored, input_type(plan_name, stored), what=f"the input of {plan_name}")


def input_type(plan_name: str, stored: PlainData) -> type[AgentInput | QueuedInput]:
    """The type of an operation's input; for an unknown verb the type that all verbs share.

    A queued operation has a `QueuedInput` until it has the agent's lock.
    """
    if stored.get("queued"):
        return QueuedInput
    verb = VERBS.get(plan_name)
    return VerbInput if verb is None or verb.input is None else verb.input


def read_options(plan_name: str, stored: PlainData) -> VerbOptions:
    """The options that the caller of a queued verb chose."""
    of: type[VerbOptions] = VERBS[plan_name].options or VerbOptions
    return read_stored(stored, of, what=f"the input of {plan_name}")
