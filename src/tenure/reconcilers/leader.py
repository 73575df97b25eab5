"""A leader's lease: of several processes one does the work, and a deposed one commits nothing.

The lease is for liveness alone.  What keeps a process that lost it from writing is its fence token,
which every commit of the work guards (`Leader.guard`).
"""

import asyncio

from tenure.app.plane import Plane
from tenure.core.ids import uuid7
from tenure.core.records import LeaseRecord
from tenure.ports.store import Below, Change, Is, Put, Row, Set

TTL_SECONDS = 15.0
PREFIX = "leader/"
"""Leases of leaders are called so.  Their rows are never dropped: a token only grows."""


def lease_of(name: str) -> tuple[str]:
    """The key of the lease of whoever leads at this."""
    return (f"{PREFIX}{name}",)


class Leader:
    """One candidate for one lease."""

    def __init__(self, plane: Plane, name: str, *, ttl_seconds: float = TTL_SECONDS) -> None:
        self._plane = plane
        self._key = lease_of(name)
        self._ttl = ttl_seconds
        self._holder = uuid7(plane.store.now(), plane.entropy.bits())
        self.token = 0
        """The fence token under which this process leads; 0: it does not."""
        self._until = 0.0
        self._one = asyncio.Lock()
        """Of two at once one would find the row changed, and take this process for another."""

    @property
    def leads(self) -> bool:
        """Whether the lease was ours when we last looked, and has not lapsed since."""
        return self.token > 0 and self._plane.store.now() < self._until

    @property
    def guard(self) -> Is:
        """What every commit of the work must find: that nobody has taken the lease since."""
        return Is("lease", self._key, {"token": self.token})

    async def renew(self) -> bool:
        """Take the lease, or keep it; whether it is ours."""
        async with self._one:
            return await self._renew(from_others=False)

    async def take_over(self) -> bool:
        """The same, also from one whose lease has not lapsed: it commits nothing from then on."""
        async with self._one:
            return await self._renew(from_others=True)

    async def _renew(self, *, from_others: bool) -> bool:
        store = self._plane.store
        now = store.now()
        if self.token and not from_others and now < self._until - self._ttl * 2 / 3:
            return True
        row = await store.find(LeaseRecord, self._key)
        until = now + self._ttl
        said: Row = {"holder": self._holder, "until": until}
        if row is None:
            token = 1
            change = Change("", (), (Put("lease", self._key, {**said, "token": token}),))
        else:
            mine = row.token == self.token and row.holder == self._holder
            if not (mine or from_others) and row.until >= now:
                self.token = 0
                return False
            token = row.token + (0 if mine else 1)
            still = mine or from_others
            lapsed = {} if still else {"until": Below(now)}  # by the store's clock at its commit
            guard = Is("lease", self._key, {"token": row.token, **lapsed})
            change = Change("", (guard,), (Set("lease", self._key, {**said, "token": token}),))
        if await store.commit(change) is not None:
            self.token = 0
            return False
        self.token, self._until = token, until
        return True

    async def resign(self) -> None:
        """Let another one take it at once."""
        if self.token:
            lapsed = Set("lease", self._key, {"until": 0.0})
            await self._plane.store.commit(Change("", (self.guard,), (lapsed,)))
            self.token = 0
