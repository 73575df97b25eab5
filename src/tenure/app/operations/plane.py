"""The part of a plane that operations need.

Operations are accepted, executed and shown with these ports and no others.  The whole plane
(`tenure.app.plane.Plane`) adds what the capabilities need, which the kernel does not know.
"""

from dataclasses import dataclass, field

from tenure.app.operations.handle import OperationHandle
from tenure.core.errors import Invalid
from tenure.plans.catalogue import Catalogue
from tenure.ports.engine import Engine
from tenure.ports.entropy import Entropy
from tenure.ports.operator_command import WritesForCommand, no_writes
from tenure.ports.seal import Seal
from tenure.ports.store import Store


@dataclass(frozen=True, slots=True)
class OperationsPlane:
    """The ports of one control plane, as far as operations use them."""

    id: str
    store: Store
    engine: Engine[OperationHandle]
    entropy: Entropy
    catalogue: Catalogue
    seal: Seal | None = field(default=None, kw_only=True)
    """Seals secrets; None: this plane stores none."""
    writes_for_command: WritesForCommand = field(default=no_writes, kw_only=True)
    """Further rows in the commit of an operator command: audit entry and finding."""

    def require_seal(self, refusal: str) -> Seal:
        """The seal; Invalid with this text if the plane has none."""
        if self.seal is None:
            raise Invalid(refusal)
        return self.seal
