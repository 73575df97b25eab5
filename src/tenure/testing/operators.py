"""Whoever asks for an operator's verb, by name."""

from tenure.core.roles import Caller, Role


def by(principal: str, tenant: str = "default") -> Caller:
    """Somebody who may operate."""
    return Caller(tenant, principal, Role.OPERATOR)
