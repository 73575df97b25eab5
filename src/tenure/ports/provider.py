"""Providers: the services that hold agents' resources, each resource addressed by its key.

The steps of a create call `ensure`, recovery calls `inspect`, compensation and delete call
`remove`.  All methods are idempotent.  A call returns, or raises `Unavailable` (not applied),
`Rejected` (refused, not applied) or `OutcomeUnknown` (may have been applied), and nothing else.
"""

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn, Protocol

from msgspec import Struct

from tenure.core.errors import Defect
from tenure.core.ids import ResourceKey

Spec = Mapping[str, object]
"""The desired state of a resource: plain data."""


class Presence(StrEnum):
    """The state of the resource under a key."""

    ABSENT = "ABSENT"
    STARTING = "STARTING"
    READY = "READY"
    BROKEN = "BROKEN"
    FOREIGN = "FOREIGN"
    """Another control plane has made the resource with this key; it is never adopted or removed."""


class Observation(NamedTuple):
    """The answer of `inspect`: the state of a resource and, if it exists, what it is."""

    presence: Presence
    reference: Mapping[str, object] = {}
    """What `ensure` returned for it: data that later steps need, such as an address."""
    owner: str = ""
    """The name of the control plane that made it, from its key; not an agent that owns another."""
    generation: int = 0
    """The generation of its key."""


class OwnedResource(NamedTuple):
    """One resource of our control plane: it is tagged with the name of the plane."""

    key: str
    """The text of its key."""
    agent: str
    generation: int
    """The agent and generation of its key."""
    since: float
    """When it was made, in seconds since 1970; 0.0 if that is not known."""


class Provider(Protocol):
    """A service that holds resources; you write one for each service that your plans use.

    Every promise here is a test in `tenure.testing.contracts.provider`.
    """

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Make the resource, or change it to match `spec`; a second call makes no second resource.

        Rejected if the key is burned, if it has a smaller generation than an earlier call for the
        same agent, or if another owner has the resource.  After a Rejected, no call with that key
        is applied any more, not even one that was sent before.
        """
        ...

    async def inspect(self, key: ResourceKey) -> Observation:
        """The state of the resource under this key, from a consistent read."""
        ...

    async def remove(self, key: ResourceKey) -> None:
        """Remove the resource and burn its key; succeeds also if there is no such resource.

        Rejected if the resource belongs to another owner; it is not changed.
        """
        ...

    def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """All resources that are tagged with this plane's name; may lag behind other calls."""
        ...


class NoPlane:
    """Stands for the control plane where a step is called without one."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Defect(f"a step called {name} of the control plane, and there is none here")


NO_PLANE = NoPlane()


class Call(Struct, frozen=True, gc=False):
    """The argument of a step's do, undo and inspect: everything that they may depend on."""

    key: ResourceKey
    """The key of this step in this operation: the same at every attempt and after a crash."""
    input: Any
    """The input of the operation: plain data, or the type that a lifecycle verb declares."""
    results: Mapping[str, object]
    """Results of earlier steps by name."""
    signals: Mapping[str, tuple[object, ...]]
    """Payloads of the signals that have come, by name, oldest first."""
    providers: Mapping[str, Provider]
    """The providers of the plane, by name."""
    token: int = 0
    """The fence token under which this call is made."""
    attempt: int = 0
    """How many calls of this step have failed in a row before this one."""
    operation: str = ""
    """The id of the operation."""
    now: float = 0.0
    """When this call was made, by the store's clock."""
    since: float = 0.0
    """When its stage was intended."""
    plane: object = NO_PLANE
    """What the control plane itself offers to steps.  The kernel only passes it on: the package of
    the plan knows its type, as `tenure.plans.agents.steps.plane_of` does.
    """
