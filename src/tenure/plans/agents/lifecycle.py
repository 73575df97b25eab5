"""Every verb of the agent lifecycle: its declaration and its plan."""

from collections.abc import Mapping
from typing import Final

from tenure.core.verb import LifecycleVerb
from tenure.plans.agents import create, delete, recover, resume, stop, suspend
from tenure.plans.agents.inputs import (
    AgentInput,
    PlainData,
    QueuedInput,
    VerbInput,
    VerbOptions,
    read_stored,
)

_MODULES = (create, suspend, stop, resume, delete, recover)
PLANS: Final = tuple(module.PLAN for module in _MODULES)
VERBS: Final[Mapping[str, LifecycleVerb]] = {module.VERB.name: module.VERB for module in _MODULES}
"""By the name of the plan."""
CLOSING: Final = frozenset(name for name, verb in VERBS.items() if verb.closes)
WAITED_FOR: Final = {name: verb.waits_for for name, verb in VERBS.items() if verb.waits_for}
"""The event whose required subscribers an operation waits for, by the name of its plan."""


def read_input(kind: str, stored: PlainData) -> AgentInput | QueuedInput:
    """The input of an operation of this verb, in the type that its steps read."""
    return read_stored(stored, input_type(kind, stored), what=f"the input of {kind}")


def input_type(kind: str, stored: PlainData) -> type[AgentInput | QueuedInput]:
    """The type of an operation's input; that of every verb if the operation is not of a known one.

    A queued operation has another one until it has the agent's lock.
    """
    if stored.get("queued"):
        return QueuedInput
    verb = VERBS.get(kind)
    return VerbInput if verb is None or verb.input is None else verb.input


def read_options(kind: str, stored: PlainData) -> VerbOptions:
    """The options that the caller of a queued verb chose."""
    of: type[VerbOptions] = VERBS[kind].options or VerbOptions
    return read_stored(stored, of, what=f"the input of {kind}")
