"""The access provider: the roles and teams of an agent, and who granted them.

A create makes an agent's grants as one resource (`tenure.ports.provider.Provider`), with the spec

    {"roles": ["reader"], "teams": ["ops"], "granted_by": "a principal, or an agent's uid"}

or `{}` for no grants.  The methods here come in addition to the four of every provider.  Every call
names a tenant and sees only the grants of that tenant.  `subject` is the uid of an agent; the
parameter keeps this name because the wire of the provider host has it.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from tenure.core.limits import PAGE_MAX
from tenure.ports.provider import Provider


class GrantKind(StrEnum):
    """What was granted."""

    ROLE = "role"
    TEAM = "team"


class Grant(NamedTuple):
    """A role or team that a granter gave to an agent, the subject of the grant."""

    agent: str
    """The agent's uid."""
    key: str
    """The key of the resource that the grant belongs to."""
    kind: GrantKind
    name: str
    granted_by: str
    at: float


class Access(Provider, Protocol):
    """Every promise here is a test in `tenure.testing.contracts.access`."""

    async def check(self, tenant: str, subject: str, *, role: str) -> bool:
        """Whether the agent of this uid has the role, by a grant or by one of its teams."""
        ...

    async def list_by_subject(
        self, tenant: str, subject: str, *, after: Grant | None = None, limit: int = PAGE_MAX
    ) -> Sequence[Grant]:
        """One page of the grants of an agent, in a fixed order, after the grant `after`."""
        ...

    async def list_by_granter(
        self, tenant: str, granter: str, *, after: Grant | None = None, limit: int = PAGE_MAX
    ) -> Sequence[Grant]:
        """One page of the grants that a granter made, in a fixed order, after the grant `after`."""
        ...

    async def revoke_subject(self, tenant: str, subject: str) -> int:
        """Revoke all grants of the agent at once; return how many there were.

        The resources stay until they are removed.  An ensure of the same generation that arrives
        late grants nothing; only an ensure of a later generation grants again.
        """
        ...

    async def revoke_granter(self, tenant: str, granter: str) -> int:
        """Revoke all grants that this granter made, at once; return how many there were.

        Grants of other granters stay, also if they give the same role to the same agent.
        """
        ...

    async def grant_team_role(self, tenant: str, team: str, *, role: str) -> None:
        """Give every member of the team this role; a repeated call succeeds."""
        ...

    async def revoke_team_role(self, tenant: str, team: str, *, role: str) -> None:
        """Take this role from the team; succeeds also if the team did not have it."""
        ...

    async def list_team_roles(self, tenant: str, team: str) -> Sequence[str]:
        """The roles that the team gives its members, sorted."""
        ...
