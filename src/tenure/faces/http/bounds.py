"""Limits of the HTTP server: requests of each tenant, connections, and time for slow clients.

A tenant has a token bucket that fills at a steady rate, and a maximum of requests in progress.  A
request beyond either is refused with the time after which to retry; other tenants are not affected.
The buckets belong to this process and start full.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf

from tenure.faces.http.problems import ProblemError

BURST_SECONDS = 2.0
"""A full bucket holds the tokens of so many seconds."""
IDLE_MAX = 1_024
"""With so many buckets, those that are full and unused are dropped."""
BUSY_SECONDS = 1
"""When to retry if a tenant has its maximum of requests in progress."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of one HTTP server; `tenure.settings` has those that can be configured."""

    requests_per_second: float = 2_000.0
    """For each tenant; 0: unlimited."""
    requests_at_once: int = 1_000
    """Requests in progress for each tenant, including streams and waits."""
    connections_max: int = 4_096
    """The maximum of connections; it is never more than half of the process's open-file limit."""
    head_seconds: float = 10.0
    """Time for the request line and headers, from the connection or their first byte on."""
    head_bytes_max: int = 65_536
    body_seconds: float = 30.0
    """Time for a body that is read whole."""
    write_seconds: float = 30.0
    """Time for a client to read on, once the socket buffers are full."""


class Bucket:
    """The token bucket of one tenant, and how many of its requests are in progress."""

    __slots__ = ("in_progress", "tokens", "updated_at")

    def __init__(self, tokens: float, now: float) -> None:
        self.tokens = tokens
        self.updated_at = now
        self.in_progress = 0


class RateLimiter:
    """The buckets of all tenants."""

    def __init__(self, bounds: Bounds) -> None:
        self._rate = bounds.requests_per_second or inf
        self._tokens_max = max(self._rate * BURST_SECONDS, 1.0)
        self._in_progress_max = bounds.requests_at_once
        self._buckets: dict[str, Bucket] = {}

    @contextmanager
    def admit(self, tenant: str) -> Iterator[None]:
        """Count one request of this tenant while the block runs, or refuse it."""
        bucket = self._bucket_of(tenant)
        if bucket.in_progress >= self._in_progress_max:
            detail = f"this tenant has {bucket.in_progress} requests in progress, its maximum"
            raise ProblemError("too_many_requests", detail, retry_after=BUSY_SECONDS)
        if bucket.tokens < 1:
            detail = f"this tenant may send {self._rate:g} requests a second"
            raise ProblemError(
                "too_many_requests", detail, retry_after=(1 - bucket.tokens) / self._rate
            )
        bucket.tokens -= 1
        bucket.in_progress += 1
        try:
            yield
        finally:
            bucket.in_progress -= 1

    def _bucket_of(self, tenant: str) -> Bucket:
        """The tenant's bucket, filled up to now."""
        now = asyncio.get_running_loop().time()
        bucket = self._buckets.get(tenant)
        if bucket is None:
            if len(self._buckets) >= IDLE_MAX:
                self._drop_full_buckets(now)
            bucket = self._buckets[tenant] = Bucket(self._tokens_max, now)
        else:
            bucket.tokens = self._tokens_at(bucket, now)
            bucket.updated_at = now
        return bucket

    def _tokens_at(self, bucket: Bucket, now: float) -> float:
        return min(bucket.tokens + (now - bucket.updated_at) * self._rate, self._tokens_max)

    def _drop_full_buckets(self, now: float) -> None:
        self._buckets = {
            tenant: bucket
            for tenant, bucket in self._buckets.items()
            if bucket.in_progress or self._tokens_at(bucket, now) < self._tokens_max
        }
