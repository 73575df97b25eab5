"""Callers with the role operator, for tests."""

from tenure.core.roles import Caller, Role


def by(principal: str, tenant: str = "default") -> Caller:
    """A caller with the role operator."""
    return Caller(tenant, principal, Role.OPERATOR)
