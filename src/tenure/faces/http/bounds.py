"""How much one tenant may ask for, and how long a client may take.

A tenant has a bucket of requests that fills at a steady rate, and so many places for requests under
way; who finds neither is told when to come again, and nobody else's are touched.  Buckets are of
this process alone and begin full.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from tenure.faces.http.problems import ProblemError

BURST_SECONDS = 2.0
"""A bucket holds what its rate gives in so long."""
IDLE_MAX = 1_024
"""Buckets after which those that are full again are forgotten."""
BUSY_SECONDS = 1
"""When to come again if all places are taken: nobody knows when one gets free."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one HTTP face; `tenure.settings` has those that a host can set."""

    requests_per_second: float = 2_000.0
    """For each tenant; 0: no bound."""
    requests_at_once: int = 1_000
    """Under way for each tenant, streams and waits included."""
    connections_max: int = 4_096
    """And never more than half of the files that the process may open."""
    head_seconds: float = 10.0
    """For a request's line and headers, from the connection or their first byte."""
    head_bytes_max: int = 65_536
    body_seconds: float = 30.0
    """For a body that is read whole."""
    write_seconds: float = 30.0
    """For a client to read on, once nothing more fits between us."""


class Bucket:
    """What one tenant has left."""

    __slots__ = ("at_once", "left", "since")

    def __init__(self, left: float, now: float) -> None:
        self.left = left
        self.since = now
        self.at_once = 0


class Allowances:
    """The buckets of all tenants."""

    def __init__(self, bounds: Bounds) -> None:
        self._rate = bounds.requests_per_second or inf
        self._most = max(self._rate * BURST_SECONDS, 1.0)
        self._at_once = bounds.requests_at_once
        self._buckets: dict[str, Bucket] = {}

    @contextmanager
    def one(self, tenant: str) -> Iterator[None]:
        """One request of this tenant, until the block is left; or a refusal."""
        bucket = self._of(tenant)
        if bucket.at_once >= self._at_once:
            detail = f"this tenant has {bucket.at_once} requests under way, as many as it may"
            raise ProblemError("too_many_requests", detail, retry_after=BUSY_SECONDS)
        if bucket.left < 1:
            detail = f"this tenant may ask {self._rate:g} times a second"
            raise ProblemError(
                "too_many_requests", detail, retry_after=(1 - bucket.left) / self._rate
            )
        bucket.left -= 1
        bucket.at_once += 1
        try:
            yield
        finally:
            bucket.at_once -= 1

    def _of(self, tenant: str) -> Bucket:
        """The tenant's bucket as it is now."""
        now = asyncio.get_running_loop().time()
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= IDLE_MAX:
                self._forget_full(now)
            bucket = self._buckets[tenant] = Bucket(self._most, now)
        else:
            bucket.left = min(bucket.left + (now - bucket.since) * self._rate, self._most)
            bucket.since = now
        return bucket

    def _forget_full(self, now: float) -> None:
        self._buckets = {
            tenant: bucket
            for tenant, bucket in self._buckets.items()
            if bucket.at_once or bucket.left + (now - bucket.since) * self._rate < self._most
        }
