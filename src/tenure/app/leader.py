"""The leader's lease: one of several processes does the work, and a former leader commits nothing.

The lease only provides liveness.  A process that has lost it is kept from writing by its fence
token: every commit of the work is guarded by that token (`Leader.guard`).
"""

import asyncio

from tenure.app.operations.plane import OperationsPlane
from tenure.core.ids import uuid7
from tenure.core.records import LeaseRecord
from tenure.ports import lease_rows
from tenure.ports.store import Change, Is

TTL_SECONDS = 15.0
PREFIX = "leader/"
"""The prefix of leases of leaders.  Their rows are never dropped, as a token may only grow."""


def lease_of(name: str) -> tuple[str]:
    """The key of the leader's lease of this name."""
    return (f"{PREFIX}{name}",)


class Leader:
    """One candidate for one lease."""

    def __init__(
        self, plane: OperationsPlane, name: str, *, ttl_seconds: float = TTL_SECONDS
    ) -> None:
        self._plane = plane
        self._key = lease_of(name)
        self._ttl = ttl_seconds
        self._holder = uuid7(plane.store.now(), plane.entropy.bits())
        self.token = 0
        """The fence token under which this process leads; 0 if it does not lead."""
        self._until = 0.0
        self._lock = asyncio.Lock()
        """Held during a renewal: of two at once, one would take this process for another."""

    @property
    def leads(self) -> bool:
        """Whether this process had the lease at the last renewal, and it has not lapsed since."""
        return self.token > 0 and self._plane.store.now() < self._until

    @property
    def guard(self) -> Is:
        """The guard of every commit of the work: no other process has taken the lease."""
        return lease_rows.lease_has_token(self._key[0], self.token)

    async def renew(self) -> bool:
        """Take or renew the lease; return whether this process has it."""
        async with self._lock:
            return await self._renew(from_others=False)

    async def take_over(self) -> bool:
        """Take the lease even if it has not lapsed; its former holder commits nothing more."""
        async with self._lock:
            return await self._renew(from_others=True)

    async def _renew(self, *, from_others: bool) -> bool:
        store = self._plane.store
        now = store.now()
        if self.token and not from_others and now < self._until - self._ttl * 2 / 3:
            return True
        row = await store.find(LeaseRecord, self._key)
        until = now + self._ttl
        if row is None:
            token = 1
            first = LeaseRecord(self._key[0], self._holder, token=token, until=until)
            change = Change("", (), (lease_rows.put_lease(first),))
        else:
            is_ours = row.token == self.token and row.holder == self._holder
            if not (is_ours or from_others) and row.until >= now:
                self.token = 0
                return False
            token = row.token + (0 if is_ours else 1)
            if is_ours or from_others:
                guard = lease_rows.lease_has_token(row.name, row.token)
            else:  # it must have lapsed by the store's clock at the commit
                guard = lease_rows.lease_has_lapsed(row, now)
            after = LeaseRecord(row.name, self._holder, token=token, until=until)
            change = Change("", (guard,), (lease_rows.set_lease(after),))
        if await store.commit(change) is not None:
            self.token = 0
            return False
        self.token, self._until = token, until
        return True

    async def resign(self) -> None:
        """Release the lease, so that another process can take it at once."""
        if self.token:
            lapsed = lease_rows.extend_lease(self._key[0], 0.0)
            await self._plane.store.commit(Change("", (self.guard,), (lapsed,)))
            self.token = 0
