"""The input of operations on agents: the values that a verb passes to the steps of its plan.

An input is stored as one JSON object: the options that the caller chose, and the values that were
read from the agent when the verb was accepted.  Its keys are the names of the fields here, or the
`name` of a `field`.  Stored keys are never renamed.  Every field has a default, because an
operation of an earlier release may lack it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType, field

from tenure.core.agent import AgentState
from tenure.core.errors import PlanUnknown
from tenure.ports.credentials import TTL_SECONDS
from tenure.ports.plane_api import HeldResource

READY_SECONDS = 60.0
"""How long a runtime may take to become ready, unless the agent's spec says otherwise."""
DRAIN_SECONDS = 30.0
"""How long a drain lets work in flight go on, unless the caller or the spec says otherwise."""

PlainData = Mapping[str, Any]
"""A JSON object whose keys are not ours: an agent's spec, or the reference of a provider."""
_Value = TypeVar("_Value")


class SpecRuntime(Struct, frozen=True, gc=False):
    """The settings of an agent's runtime that plans read."""

    ready_seconds: float = READY_SECONDS
    drain_seconds: float = DRAIN_SECONDS


class SpecCredential(Struct, frozen=True, gc=False):
    """A credential that an agent may ask for."""

    audience: str
    scopes: Sequence[str] = ()
    ttl_seconds: int = TTL_SECONDS


class SpecParts(Struct, frozen=True, gc=False):
    """The parts of an agent's spec that verbs and steps read; it was checked when it came in."""

    name: str = ""
    owner: str = ""
    roles: Sequence[str] = ()
    teams: Sequence[str] = ()
    credentials: Sequence[SpecCredential] = ()
    runtime: SpecRuntime = SpecRuntime()
    retention: str = "remove"


class VerbOptions(Struct, frozen=True, kw_only=True):
    """The options that a caller chooses for a verb; they must be the same under the same key.

    A verb that has one of these options declares it again, with its own default.
    """

    drain_seconds: float | UnsetType | None = UNSET
    """How long work in flight may go on; None: as the agent's spec says."""
    retention: str | UnsetType | None = UNSET
    """`remove` or `retain`; None: as the agent's spec says."""


class AgentInput(Struct, frozen=True, kw_only=True):
    """The input of the steps of every verb; a create has no more than this."""

    queued: ClassVar[bool] = False
    name: str = ""
    """The agent's name."""
    spec: PlainData = {}
    """The agent's spec as its owner wrote it."""
    runtime: PlainData = {}
    """The runtime settings of the spec, with the digests of the files that it starts."""
    principal: str = ""
    """Who requested the verb."""

    def read_spec(self) -> SpecParts:
        """The parts of the spec that steps read."""
        return msgspec.convert(self.spec, SpecParts)


class VerbInput(AgentInput, frozen=True, kw_only=True):
    """The input of a verb on an agent that exists; some verbs add their options."""

    return_state: AgentState = field(default=AgentState.READY, name="was")
    """The state to which the agent returns if the operation is cancelled."""
    previous_operation: str = field(default="", name="after")
    """The operation that had the agent's lock when the verb was accepted; empty: none."""
    runtimes: Sequence[HeldResource] = ()
    """The runtimes that the agent held at that time."""
    drain_seconds: float = DRAIN_SECONDS
    """How long work in flight may go on."""
    retention: str = "remove"
    """`retain`: the agent's spec outlives the agent."""
    epoch: int = 0
    """The number under which providers open or close the agent; a smaller one changes nothing."""
    owners: Sequence[str] | UnsetType = UNSET
    """The agents whose edges to this one end with it; only a delete has them."""


class QueuedInput(Struct, frozen=True, kw_only=True):
    """The input of a verb that waits for the agent's lock and has changed nothing so far.

    The options are stored beside it, and are read when the verb starts.
    """

    name: str = ""
    principal: str = ""
    return_state: AgentState = field(default=AgentState.READY, name="was")
    previous_operation: str = field(default="", name="after")
    queued: bool = True


class LockedInput(Struct, frozen=True):
    """The part of an input that is written again when its operation gets the agent's lock."""

    return_state: AgentState = field(name="was")
    previous_operation: str = field(default="", name="after")


def plain_fields(*values: Struct) -> dict[str, Any]:
    """The fields of these values as one JSON object; a later value overrides an earlier one."""
    fields: dict[str, Any] = {}
    for value in values:
        fields |= msgspec.to_builtins(value)
    return fields


def read_stored(stored: object, of: type[_Value], *, what: str) -> _Value:
    """Stored plain data as a value of this type; keys that the type does not have are ignored.

    PlanUnknown if a newer release has stored something else under a key.
    """
    try:
        return msgspec.convert(stored, of)
    except msgspec.ValidationError as error:
        raise PlanUnknown(f"{what} is stored in a form that is unknown here: {error}") from None
