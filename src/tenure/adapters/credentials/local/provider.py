"""`LocalCredentials`: registrations are rows that belong to a row of `resource`.

One row of `closing` says whether an agent is closed; every listing reads it.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial

from tenure.adapters.credentials.local import spec as specs
from tenure.core.errors import Invalid, Rejected, Unavailable
from tenure.core.ids import ResourceKey
from tenure.core.limits import PAGE_MAX
from tenure.core.records.table import TableShape
from tenure.ports.credentials import AudienceRegistration
from tenure.ports.provider import Spec
from tenure.ports.store import Below, Change, Is, Key, Put, Row, Set
from tenure.sqlite.resource_file import ATTEMPTS_MAX, GuardOrWrite, ResourceFile, differences

TABLES = {
    "registration": TableShape(
        ("agent", "key", "audience"), ("tenant", "scopes", "ttl_seconds", "at")
    ),
    "closing": TableShape(("agent", "tenant"), ("epoch", "closed", "at")),
}
EPOCH_MAX = 2**63 - 2
"""The greatest epoch whose successor still fits into a column."""


class LocalCredentials:
    """Implements `tenure.ports.credentials.Credentials` on one file."""

    def __init__(self, resources: ResourceFile, queries: Mapping[str, str]) -> None:
        self._resources = resources
        self._queries = queries
        self.inspect = resources.inspect
        self.list_owned = resources.list_owned
        self.close = resources.close

    # -------------------------------------------------------------------------- provider methods

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Register the credentials of the spec, and remove others of this key."""
        try:
            desired = specs.read(spec)
        except Invalid as error:
            await self._resources.refuse(key, str(error))
        return await self._resources.ensure(
            key,
            spec,
            reference=lambda: {"agent": key.agent},
            extra_changes=partial(self._converge, key, desired),
        )

    async def remove(self, key: ResourceKey) -> None:
        """Remove the registrations of this key, and burn it."""
        await self._resources.remove(
            key, extra_changes=lambda _: differences("registration", self._current(key), {})
        )

    def _converge(
        self, key: ResourceKey, desired: tuple[specs.DesiredCredential, ...], before: Row | None
    ) -> Sequence[GuardOrWrite]:
        """The writes from the current registrations to the desired ones."""
        current = {} if before is None else self._current(key)
        at = self._resources.now()
        rows: dict[Key, Row] = {
            (key.agent, key.text, audience): {
                "tenant": key.tenant,
                "scopes": json.dumps(scopes),
                "ttl_seconds": ttl_seconds,
                "at": at,
            }
            for audience, scopes, ttl_seconds in desired
        }
        return differences("registration", current, rows)

    def _current(self, key: ResourceKey) -> dict[Key, Row]:
        parameters = {"agent": key.agent, "key": key.text, "tenant": key.tenant}
        found = self._resources.read(self._queries["registrations_of_key"], parameters)
        return {
            (key.agent, key.text, audience): {
                "tenant": key.tenant,
                "scopes": scopes,
                "ttl_seconds": ttl_seconds,
            }
            for audience, scopes, ttl_seconds in found
        }

    # ------------------------------------------------------------------------------------ queries

    async def list_registrations(
        self,
        tenant: str,
        agent: str,
        *,
        after: AudienceRegistration | None = None,
        limit: int = PAGE_MAX,
    ) -> Sequence[AudienceRegistration]:
        """Read one page, with the agent's closing from the same snapshot."""
        parameters: Row = {
            "tenant": tenant,
            "agent": agent,
            "after_key": "" if after is None else after.key,
            "after_audience": "" if after is None else after.audience,
            "limit": max(0, min(limit, PAGE_MAX)),
        }
        return [
            AudienceRegistration(
                whose, key, audience, tuple(json.loads(scopes)), ttl, at, not closed
            )
            for whose, key, audience, scopes, ttl, at, closed in self._resources.read(
                self._queries["list_registrations"], parameters
            )
        ]

    async def is_open(self, tenant: str, agent: str) -> bool:
        """Read the agent's row of `closing`."""
        row = self._resources.find("closing", (agent, tenant))
        return row is None or not row["closed"]

    # ------------------------------------------------------------------------------------ changes

    async def close_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        """Record that the agent is closed, unless a later epoch is stored."""
        return await self._set_closing((agent, tenant), epoch, closed=1)

    async def reopen_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        """Record that the agent is open, unless a later epoch is stored."""
        return await self._set_closing((agent, tenant), epoch, closed=0)

    async def _set_closing(self, key: tuple[str, str], epoch: int, *, closed: int) -> bool:
        if type(epoch) is not int or not 0 <= epoch <= EPOCH_MAX:
            raise Rejected(f"epoch must be a whole number from 0 to {EPOCH_MAX}")
        new_row: Row = {"epoch": epoch, "closed": closed, "at": self._resources.now()}
        for _ in range(ATTEMPTS_MAX):
            row = self._resources.find("closing", key)
            if row is None:
                change = Change("", (), (Put("closing", key, new_row),))
            elif row["epoch"] > epoch:  # type: ignore[operator]
                return False
            elif (row["epoch"], row["closed"]) == (epoch, closed):
                return True
            else:
                not_later = Is("closing", key, {"epoch": Below(epoch + 1)})
                change = Change("", (not_later,), (Set("closing", key, new_row),))
            if await self._resources.commit(change) is None:
                return True
        raise Unavailable(f"Too many concurrent closings of {key[0]}: nothing was changed.")
