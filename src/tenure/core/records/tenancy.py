"""Records of tenancy: API tokens, the audit log, settings of a tenant."""

from typing import Annotated, NamedTuple

from tenure.core.records.table import declares_table
from tenure.core.roles import Role


@declares_table("token", key=("hash",))
class TokenRecord(NamedTuple):
    """An API token, known only by its hash."""

    hash: str
    """The hash of the token."""
    id: str
    """The name under which it is listed and revoked."""
    tenant: str
    """The tenant that its bearer acts for."""
    principal: str
    """The bearer."""
    role: Annotated[str, Role]
    """What the bearer may do."""
    created_at: float
    """When it was issued."""
    expires_at: float | None
    """The instant from which it is refused; NULL: it does not expire."""
    revoked_at: float | None
    """When it was revoked; NULL: it was not."""
    epoch: int | None
    """The plane's epoch at its issue; NULL: a release that kept no epochs issued it."""


@declares_table("audit", key=("position",))
class AuditRecord(NamedTuple):
    """One line of the audit log, which is append-only and chained by hashes."""

    position: int
    """Its place in the log."""
    tenant: str
    """The tenant of the caller."""
    principal: str
    """The caller."""
    action: str
    """What was done, such as `agent.suspend`."""
    target: str
    """The thing that it was done to."""
    at: float
    """When it was done."""
    body: str
    """Further details as JSON."""
    hash: str
    """The hash of this line and of the one before it."""


@declares_table("tenancy", key=("tenant",))
class TenancyRecord(NamedTuple):
    """The one setting of a tenant as a whole; tokens, roles and quotas have their own records."""

    tenant: str
    """The tenant."""
    strict: int
    """1: no agent is created while an acknowledgement is missing; 0: it may be created."""
    revision: int
    """Raised when an acknowledgement is newly waited for or the settings change."""
