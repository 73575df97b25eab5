"""`WebhookBus`: sends events to URLs that tenants have named, and protects the plane from them.

A name is resolved once for each connection.  Every address must be public, and the connection is
made to a checked address with the certificate of the name.  Redirects are refused, only the needed
part of an answer is read, and every call has a timeout.  An endpoint that fails repeatedly is not
called for a while (circuit breaker).
"""

import asyncio
import resource
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from tenure.adapters.bus.webhook.lookups import Lookups, LookupsBusy, Resolve, resolve_name
from tenure.adapters.bus.webhook.signing import signature_headers
from tenure.core.egress import EgressTarget, refuse_private, target_of
from tenure.core.errors import Invalid
from tenure.core.retry import WEBHOOK_BREAKER
from tenure.ports.bus import DELIVERED, DeliveryVerdict, Destination, Outgoing, Receipt
from tenure.ports.clock import Clock

CALL_SECONDS: Final = 10.0
ANSWER_BYTES_MAX: Final = 4_096
ENDPOINT_CALLS_MAX: Final = 16
"""Concurrent calls to one endpoint."""
TENANT_CALLS_MAX: Final = 128
"""Concurrent calls to all endpoints of one tenant, so that they cannot delay other tenants."""
CALLS_MAX: Final = 1_024
"""Concurrent calls of all tenants, and at most a quarter of the file descriptor limit."""
TENANTS_MIN: Final = 8
"""One tenant gets at most this fraction (1/8) of the calls of all tenants."""
BREAKER_FAILURES: Final = 5
"""Failures in a row after which an endpoint is not called for a while."""
BREAKERS_MAX: Final = 10_000
"""Failing endpoints that are remembered; beyond that the oldest failure is forgotten."""
RETRY_SECONDS_MAX: Final = 3_600.0
RETRYABLE_STATUSES: Final = frozenset({408, 425, 429})
"""Status codes from 400 to 499 that do not reject the event itself."""
GONE: Final = 410
_tenant: ContextVar[str] = ContextVar("tenant")
"""The tenant of the current call; the HTTP client passes only the host to the resolver."""


class _Breaker(NamedTuple):
    """A circuit breaker for one endpoint that fails."""

    failures: int = 0
    """Failures in a row; calls that ran at the same time count as one."""
    failed_at: float = 0.0
    open_until: float = 0.0
    why: str = ""


_CLOSED_BREAKER: Final = _Breaker()


class WebhookBus:
    """Implements `tenure.ports.bus.Bus` by calling URLs."""

    def __init__(
        self,
        *,
        clock: Clock,
        loopback: bool = False,
        resolve: Resolve = resolve_name,
        call_seconds: float = CALL_SECONDS,
        ssl_context: Any = None,
    ) -> None:
        """`loopback` allows http to this machine, for development."""
        self._clock = clock
        self._loopback = loopback
        self._lookups = Lookups(resolve)
        self._call_seconds = call_seconds
        self._ssl = ssl_context
        self._session: Any = None
        self._breakers: dict[str, _Breaker] = {}
        calls = _calls_max()
        self._call_slots = asyncio.Semaphore(calls)
        self._tenant_calls_max = max(1, min(TENANT_CALLS_MAX, calls // TENANTS_MIN))
        self._tenant_slots: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def publish(
        self, destination: Destination, events: Sequence[Outgoing]
    ) -> Sequence[Receipt]:
        """Call the endpoint once for each event, a few at a time; not while its breaker is open."""
        try:
            target = target_of(destination.target, loopback=self._loopback)
        except Invalid as error:
            return [Receipt(DeliveryVerdict.UNAVAILABLE, str(error))] * len(events)
        endpoint_slots = asyncio.Semaphore(ENDPOINT_CALLS_MAX)
        tenant_slots = self._tenant_slots.setdefault(
            destination.tenant, asyncio.Semaphore(self._tenant_calls_max)
        )

        async def deliver(event: Outgoing) -> Receipt:
            async with endpoint_slots, tenant_slots, self._call_slots:
                _tenant.set(destination.tenant)
                return await self._deliver(destination, target, event)

        return await asyncio.gather(*(deliver(event) for event in events))

    async def _deliver(
        self, destination: Destination, target: EgressTarget, event: Outgoing
    ) -> Receipt:
        breaker = self._breakers.get(destination.id, _CLOSED_BREAKER)
        started_at = self._clock.monotonic()
        remaining = breaker.open_until - started_at
        if remaining > 0:
            pause = f"it failed {breaker.failures} times in a row and is not called for a while"
            return Receipt(DeliveryVerdict.UNAVAILABLE, f"{breaker.why}; {pause}", remaining)
        try:
            receipt = await self._call(destination, target, event)
        except LookupsBusy as error:  # not a failure of the destination
            return Receipt(DeliveryVerdict.UNAVAILABLE, str(error))
        # Removed and added again, so that the newest failure is last.
        breaker = self._breakers.pop(destination.id, _CLOSED_BREAKER)
        if receipt.verdict is DeliveryVerdict.UNAVAILABLE:
            self._breakers[destination.id] = self._after_failure(breaker, started_at, receipt.why)
            if len(self._breakers) > BREAKERS_MAX:
                del self._breakers[next(iter(self._breakers))]
        return receipt

    def _after_failure(self, breaker: _Breaker, started_at: float, why: str) -> _Breaker:
        """Count a failure, unless this call began before the last failure was known."""
        now = self._clock.monotonic()
        failures = breaker.failures + (not breaker.failures or started_at >= breaker.failed_at)
        if failures < BREAKER_FAILURES:
            return _Breaker(failures, now, 0.0, why)
        pause = WEBHOOK_BREAKER.delay_seconds(failures - BREAKER_FAILURES)
        return _Breaker(failures, now, now + pause, why)

    async def _call(
        self, destination: Destination, target: EgressTarget, event: Outgoing
    ) -> Receipt:
        import aiohttp  # noqa: PLC0415 (390 ms; most planes have no webhooks)

        headers = {
            "content-type": "application/cloudevents+json",
            "user-agent": "tenure",
            **signature_headers(
                event.id, event.body, at=self._clock.now(), secrets=destination.secrets
            ),
        }
        try:
            async with asyncio.timeout(self._call_seconds):
                async with self._get_session().post(
                    target.url, data=event.body, headers=headers, allow_redirects=False
                ) as answer:
                    await _read_answer(answer)
                    return _receipt_of(answer.status, answer.headers.get("retry-after", ""))
        except TimeoutError:
            why = f"it did not answer within {self._call_seconds:g} s"
            return Receipt(DeliveryVerdict.UNAVAILABLE, why)
        except Invalid as error:
            return Receipt(DeliveryVerdict.UNAVAILABLE, str(error))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, Invalid) else error
            return Receipt(DeliveryVerdict.UNAVAILABLE, f"{type(cause).__name__}: {cause}")

    def _get_session(self) -> Any:
        """Return the HTTP client, created at the first call."""
        if self._session is None:
            from tenure.adapters.bus.webhook.client import open_session  # noqa: PLC0415 (as above)

            self._session = open_session(self._addresses, ssl_context=self._ssl)
        return self._session

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Resolve the name and check each address."""
        found = await self._lookups.addresses(_tenant.get(), host, port)
        checked = refuse_private(host, found, loopback=self._loopback)
        return [str(address) for address in checked]

    async def close(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        await self._lookups.close()


def _calls_max() -> int:
    """How many calls may run at once: each needs a file descriptor, and so do other tasks."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CALLS_MAX if files == resource.RLIM_INFINITY else max(1, min(CALLS_MAX, files // 4))


async def _read_answer(answer: Any) -> None:
    """Read only as much of an answer as is needed to reuse the connection."""
    body = await answer.content.read(ANSWER_BYTES_MAX)
    if len(body) >= ANSWER_BYTES_MAX or not answer.content.at_eof():
        answer.close()


def _receipt_of(status: int, retry_after: str) -> Receipt:
    """What an answer means: delivered, refused, or unavailable."""
    if 200 <= status < 300:  # noqa: PLR2004 (every success)
        return DELIVERED
    why = f"it answered {status}"
    if 300 <= status < 400:  # noqa: PLR2004
        return Receipt(DeliveryVerdict.UNAVAILABLE, f"{why}; redirects are not followed")
    if status == GONE:
        return Receipt(
            DeliveryVerdict.UNAVAILABLE, f"{why}: the endpoint is gone", RETRY_SECONDS_MAX
        )
    if 400 <= status < 500 and status not in RETRYABLE_STATUSES:  # noqa: PLR2004
        return Receipt(DeliveryVerdict.REFUSED, why)
    seconds = int(retry_after) if retry_after.isdecimal() and len(retry_after) < 6 else 0  # noqa: PLR2004
    return Receipt(DeliveryVerdict.UNAVAILABLE, why, min(float(seconds), RETRY_SECONDS_MAX))
