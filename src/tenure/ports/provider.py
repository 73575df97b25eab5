"""Providers: services that hold agents' resources, each resource addressed by its key.

Every provider has the same four verbs, all idempotent.  A call ends by returning, or by raising
`Unavailable` (not applied), `Rejected` (a definite no) or `OutcomeUnknown` (may have been applied);
nothing else may pass this port.
"""

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn, Protocol

from msgspec import Struct

from tenure.core.errors import Defect
from tenure.core.ids import ResourceKey

Spec = Mapping[str, object]
"""What a resource should be: plain data."""


class Presence(StrEnum):
    """What a provider says of a key."""

    ABSENT = "ABSENT"
    STARTING = "STARTING"
    READY = "READY"
    BROKEN = "BROKEN"
    FOREIGN = "FOREIGN"
    """Something stands under this key that is not ours; never adopted, never removed."""


class Observation(NamedTuple):
    """An inspect's answer: presence, and for what is there its reference, owner and generation."""

    presence: Presence
    reference: Mapping[str, object] = {}
    """What later steps need to know of it, as `ensure` returned it."""
    owner: str = ""
    """The plane of its key."""
    generation: int = 0
    """The generation of its key."""


class OwnedResource(NamedTuple):
    """One resource that carries our owner tag."""

    key: str
    """The text of its key."""
    agent: str
    generation: int
    """Both as its key has them."""
    since: float
    """When it was made, in seconds since the epoch; 0.0 if that is not known."""


class Provider(Protocol):
    """A service that holds resources; you write one for each service that your plans use.

    Every promise here is a test in `tenure.testing.contracts.provider`.
    """

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Make the resource, or converge it to `spec`; the same key twice is one resource.

        A smaller generation than the last seen, a burned key and a foreign holder are Rejected.
        A refusal is final: no call of that key is applied later, not even one sent before.
        """
        ...

    async def inspect(self, key: ResourceKey) -> Observation:
        """What stands under this key, read consistently."""
        ...

    async def remove(self, key: ResourceKey) -> None:
        """Remove the resource and burn its key; twice, or of the unknown, succeeds.

        What is foreign is Rejected and left alone.
        """
        ...

    def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Everything that carries this plane's owner tag; may lag behind ensure and remove."""
        ...


class NoPlane:
    """Stands for the control plane where a step is called without one."""

    def __getattr__(self, name: str) -> NoReturn:
        raise Defect(f"a step called {name} of the control plane, and there is none here")


NO_PLANE = NoPlane()


class Call(Struct, frozen=True, gc=False):
    """What a step's do, undo or inspect is given: all it may depend on."""

    key: ResourceKey
    """The key of this step in this operation: the same at every attempt and after a crash."""
    input: Any
    """What the operation was started with: plain data, or the type that a verb declares."""
    results: Mapping[str, object]
    """Results of earlier steps by name."""
    signals: Mapping[str, tuple[object, ...]]
    """Payloads of the signals that have come, by name, oldest first."""
    providers: Mapping[str, Provider]
    """The providers of the plane, by name."""
    token: int = 0
    """The fence token under which this call is made."""
    attempt: int = 0
    """How many calls of this step have failed before."""
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
