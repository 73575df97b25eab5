"""Credentials: what an agent may ask for, and whether it may ask at all.

What an agent may ask for is a resource of an ordinary `tenure.ports.provider.Provider`, whose spec
is

    {"credentials": [{"audience": "https://…", "scopes": ["mail:read"], "ttl_seconds": 300}]}

and `{}` for nothing at all.  No secret passes this port, in either direction.  What is here is
asked beside the four verbs.  The tenant is said in every call, and what belongs to another is as
if it were not there.

An agent is open until it is closed.  Closing is one record for the agent, so it covers every
registration at once, also one that arrives later.  Each closing has an epoch of its own, greater
than the one before; who comes with a smaller one than the last seen changes nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tenure.core.limits import PAGE_MAX
from tenure.ports.provider import Provider

TTL_SECONDS = 300
"""How long a credential lives if its registration does not say."""
TTL_SECONDS_MAX = 900
"""How long it may live at most, whatever anyone says."""


class AudienceRegistration(NamedTuple):
    """One audience that an agent may ask credentials for."""

    agent: str
    """The agent's uid."""
    key: str
    """The resource that it is part of."""
    audience: str
    scopes: tuple[str, ...]
    """The most that may be asked for, in the order of the alphabet."""
    ttl_seconds: int
    """The ceiling."""
    at: float
    is_open: bool
    """Whether anything may be minted by it now."""


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
        """One page of what the agent may ask for, in a fixed order, after this registration."""
        ...

    async def is_open(self, tenant: str, agent: str) -> bool:
        """Whether anything may be minted for the agent; of an unknown one nothing was closed."""
        ...

    async def close_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        """From now on nothing may be minted for this agent; twice succeeds.

        False if a later epoch was seen: nothing has changed.
        """
        ...

    async def reopen_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        """What is registered may be asked for again; twice, or of one that is open, succeeds.

        False if a later epoch was seen: nothing has changed.
        """
        ...
