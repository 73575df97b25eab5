"""Roles: what whoever asks may ask for."""

from enum import StrEnum
from typing import NamedTuple

from tenure.core.errors import Forbidden


class Role(StrEnum):
    """From the least to the most; each may do what those before it may."""

    VIEWER = "viewer"
    """Look."""
    OPERATOR = "operator"
    """Create, suspend, resume, delete, and help what is stuck."""
    APPROVER = "approver"
    """Say yes to what an operator has asked for; nothing needs a yes yet."""
    ADMIN = "admin"
    """Hand out tokens, set quotas, read the audit log."""

    def may(self, needed: "Role") -> bool:
        """Whether this role is enough."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


class Caller(NamedTuple):
    """Who asks: for whose world, under which name, with which role."""

    tenant: str
    principal: str
    role: Role


def require(caller: Caller, needed: Role) -> None:
    """Forbidden if the caller's role is not enough."""
    if not caller.role.may(needed):
        raise Forbidden(f"this needs the role {needed}; the token has {caller.role}")
