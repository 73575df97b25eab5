"""Roles: what a caller may request."""

from enum import StrEnum
from typing import NamedTuple

from tenure.core.errors import Forbidden


class Role(StrEnum):
    """Roles in ascending order; each role includes the ones before it."""

    VIEWER = "viewer"
    """Read."""
    OPERATOR = "operator"
    """Create, suspend, resume and delete agents; resolve stuck operations."""
    APPROVER = "approver"
    """Approve requests of operators; nothing needs an approval yet."""
    ADMIN = "admin"
    """Create tokens, set quotas, read the audit log."""

    def may(self, needed: "Role") -> bool:
        """Whether this role is enough."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Caller(NamedTuple):
    """Who makes a request: tenant, principal and role."""

    tenant: str
    principal: str
    role: Role


def require(caller: Caller, needed: Role) -> None:
    """Forbidden if the caller's role is not enough."""
    if not caller.role.may(needed):
        raise Forbidden(f"this needs the role {needed}; the token has {caller.role}")
