"""Access: which roles an agent has, of which teams it is a member, and who granted it that.

An agent's grants are a resource of an ordinary `tenure.ports.provider.Provider`, whose spec is

    {"roles": ["reader"], "teams": ["ops"], "granted_by": "a principal, or an agent's uid"}

and `{}` for none at all.  What is here is asked beside the four verbs.  The tenant is said in every
call, and what belongs to another is as if it were not there.
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
    """One edge from a granter to a subject."""

    subject: str
    """The agent's uid."""
    key: str
    """The resource that it is part of."""
    kind: GrantKind
    name: str
    granted_by: str
    at: float


class Access(Provider, Protocol):
    """Every promise here is a test in `tenure.testing.contracts.access`."""

    async def check(self, tenant: str, subject: str, *, role: str) -> bool:
        """Whether the subject has this role: by a grant, or by one of its teams."""
        ...

    async def list_by_subject(
        self, tenant: str, subject: str, *, after: Grant | None = None, limit: int = PAGE_MAX
    ) -> Sequence[Grant]:
        """One page of what the subject was granted, in a fixed order, after this grant."""
        ...

    async def list_by_granter(
        self, tenant: str, granter: str, *, after: Grant | None = None, limit: int = PAGE_MAX
    ) -> Sequence[Grant]:
        """One page of what the granter has granted, in a fixed order, after this grant."""
        ...

    async def revoke_subject(self, tenant: str, subject: str) -> int:
        """Take away everything the subject was granted, at once; how many grants that were.

        The resources stay until they are removed. A call of the same generation brings nothing
        back, however late it comes; an ensure of a later generation grants anew.
        """
        ...

    async def revoke_granter(self, tenant: str, granter: str) -> int:
        """Take away everything that this granter has granted, at once; how many grants that were.

        What others have granted stays, also of the same name to the same subject.
        """
        ...

    async def give_team(self, tenant: str, team: str, *, role: str) -> None:
        """Every member of the team has this role from now on; twice succeeds."""
        ...

    async def take_from_team(self, tenant: str, team: str, *, role: str) -> None:
        """The team does not give this role any more; twice, or of the unknown, succeeds."""
        ...

    async def list_team_roles(self, tenant: str, team: str) -> Sequence[str]:
        """The roles that members of the team have by it, in the order of the alphabet."""
        ...
