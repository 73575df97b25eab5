"""The credentials provider: which credentials an agent may request, and whether it is closed.

A create registers the audiences of an agent as one resource (`tenure.ports.provider.Provider`),
with the spec

    {"credentials": [{"audience": "https://…", "scopes": ["mail:read"], "ttl_seconds": 300}]}

or `{}` for none.  No secret passes this port.  The methods here come in addition to the four of
every provider.  Every call names a tenant and sees only the registrations of that tenant.

A suspend, stop or delete closes the agent: no credential is issued any more.  Closing is one record
for the agent, so it covers every registration at once, also one that arrives later.  Each call
that closes or reopens has an epoch.  A call with a smaller epoch than the last one changes nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tenure.core.limits import PAGE_MAX
from tenure.ports.provider import Provider

TTL_SECONDS = 300
"""The lifetime of a credential if its registration names none."""
TTL_SECONDS_MAX = 900
"""The longest lifetime that a registration can name."""


class AudienceRegistration(NamedTuple):
    """One audience for which an agent may request credentials."""

    agent: str
    """The agent's uid."""
    key: str
    """The key of the resource that it belongs to."""
    audience: str
    scopes: tuple[str, ...]
    """The scopes that may be requested, sorted."""
    ttl_seconds: int
    """The longest lifetime that may be requested."""
    at: float
    is_open: bool
    """Whether credentials are issued for it now."""


class Credentials(Provider, Protocol):
    """Every promise here is a test in `tenure.testing.contracts.credentials`."""

    async def list_registrations(
        self,
        tenant: str,
        agent: str,
        *,
        after: AudienceRegistration | None = None,
        limit: int = PAGE_MAX,
    ) -> Sequence[AudienceRegistration]:
        """One page of the agent's registrations, in a fixed order, after `after`."""
        ...

    async def is_open(self, tenant: str, agent: str) -> bool:
        """Whether credentials are issued for the agent; True also for an unknown agent."""
        ...

    async def close_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        """Issue no credentials for this agent from now on; a repeated call succeeds.

        False if a call with a greater epoch came before: nothing was changed.
        """
        ...

    async def reopen_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        """Issue credentials for this agent again; succeeds also if it was not closed.

        False if a call with a greater epoch came before: nothing was changed.
        """
        ...
