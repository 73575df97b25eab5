"""Publishes events to NATS JetStream; an event is delivered when the server has stored it.

The event's id is the message id, so that the server drops a second copy within its window.  The
stream is created, with limits, if it does not exist.

Every event has the subject `PREFIX.events.TENANT.AGENT.TYPE`.  An event for a subscription has the
subject `PREFIX.to.TENANT.SUBJECT.AGENT.TYPE`, where SUBJECT is the subscription's own.  A tenant
can therefore never write below another tenant's name.
"""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import nats
from nats.js.errors import NotFoundError

from tenure.core.errors import Unavailable
from tenure.ports.bus import DELIVERED, DeliveryVerdict, Destination, Outgoing, Receipt

STREAM: Final = "TENURE"
PREFIX: Final = "tenure"
MESSAGES_MAX: Final = 10_000_000
BYTES_MAX: Final = 10 * 1024 * 1024 * 1024
AGE_SECONDS_MAX: Final = 7 * 86_400
DEDUPE_SECONDS: Final = 600
ANSWER_SECONDS: Final = 10.0
CONNECT_SECONDS: Final = 5.0
YIELD_EVERY: Final = 32
"""Messages that are written before other tasks of the event loop run."""
TOO_LARGE: Final = "the message is larger than the server accepts"
_NOT_ALLOWED: Final = re.compile(r"[^A-Za-z0-9_-]")


class _Batch:
    """Messages that were sent together, and the receipt of each."""

    def __init__(self, size: int) -> None:
        self._receipts: list[Receipt | None] = [None] * size
        self._unanswered = size
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._failure = f"no answer within {ANSWER_SECONDS:g} s"

    def set_receipt(self, position: int, receipt: Receipt) -> None:
        if self._receipts[position] is None:
            self._receipts[position] = receipt
            self._unanswered -= 1
            if not self._unanswered and not self._done.done():
                self._done.set_result(None)

    def fail(self, why: str) -> None:
        """Give the messages without a receipt this failure, and stop waiting."""
        self._failure = why
        if not self._done.done():
            self._done.set_result(None)

    async def wait(self, seconds: float) -> None:
        if self._unanswered:
            await asyncio.wait([self._done], timeout=seconds)

    def receipts(self) -> list[Receipt]:
        unanswered = Receipt(DeliveryVerdict.UNAVAILABLE, self._failure)
        return [receipt or unanswered for receipt in self._receipts]


class NatsBus:
    """Implements `tenure.ports.bus.Bus` on one NATS server."""

    def __init__(
        self,
        url: str,
        *,
        stream: str = STREAM,
        prefix: str = PREFIX,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """The connection is opened at the first event."""
        self._url = url
        self._stream = stream
        self._prefix = prefix
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self._client: Any = None
        self._has_stream = False
        self._inbox = ""
        self._last_batch = 0
        self._in_flight: dict[int, _Batch] = {}
        """Batches whose messages do not all have a receipt yet."""
        self._lock = asyncio.Lock()
        self._closed = False

    async def publish(
        self, destination: Destination, events: Sequence[Outgoing]
    ) -> Sequence[Receipt]:
        """Send all events, then wait until the server has acknowledged each."""
        try:
            client = await self._connect()
        except Exception as error:  # noqa: BLE001 (the client raises errors of any type)
            return [Receipt(DeliveryVerdict.UNAVAILABLE, _describe(error))] * len(events)
        batch = _Batch(len(events))
        self._last_batch += 1
        number = self._last_batch
        self._in_flight[number] = batch
        try:
            for position, event in enumerate(events):
                if position % YIELD_EVERY == YIELD_EVERY - 1:
                    await asyncio.sleep(0)
                if len(event.body) > client.max_payload:
                    batch.set_receipt(position, Receipt(DeliveryVerdict.REFUSED, TOO_LARGE))
                    continue
                await client.publish(
                    self.subject(destination, event),
                    event.body,
                    reply=f"{self._inbox}.{number}.{position}",
                    headers={"Nats-Msg-Id": _message_id(destination, event)},
                )
            await batch.wait(ANSWER_SECONDS)
        except Exception as error:  # noqa: BLE001 (as above)
            batch.fail(_describe(error))
        finally:
            del self._in_flight[number]
        return batch.receipts()

    async def _on_answer(self, message: Any) -> None:
        """Handle the server's answer to one message: stored, or the error."""
        *_, number, position = message.subject.split(".")
        batch = self._in_flight.get(int(number))
        if batch is not None:
            batch.set_receipt(int(position), _receipt(message))

    def subject(self, destination: Destination, event: Outgoing) -> str:
        """Return the subject of an event for this destination."""
        tenant, agent = _token(event.tenant), _token(event.agent)
        if destination.target:
            return f"{self._prefix}.to.{tenant}.{destination.target}.{agent}.{event.type}"
        return f"{self._prefix}.events.{tenant}.{agent}.{event.type}"

    async def _connect(self) -> Any:
        """Return the connected client; the stream exists then."""
        async with self._lock:
            if self._closed:
                raise ConnectionError("this bus is closed")
            if self._client is None or self._client.is_closed:
                self._client = await nats.connect(
                    self._url,
                    name="tenure",
                    connect_timeout=int(CONNECT_SECONDS),
                    allow_reconnect=True,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=0.5,
                    error_cb=_ignore,
                    disconnected_cb=self._on_disconnect,
                )
                self._inbox = self._client.new_inbox()
                await self._client.subscribe(f"{self._inbox}.*.*", cb=self._on_answer)
                self._has_stream = False
            if not self._client.is_connected:
                raise ConnectionError("the server cannot be reached")
            if not self._has_stream:
                await self._ensure_stream()
                self._has_stream = True
            return self._client

    async def _ensure_stream(self) -> None:
        """Create the stream if it does not exist; an existing one is not changed."""
        from nats.js.api import DiscardPolicy, StreamConfig  # noqa: PLC0415 (as above)
        from nats.js.errors import NotFoundError  # noqa: PLC0415

        jetstream = self._client.jetstream(timeout=ANSWER_SECONDS)
        try:
            await jetstream.stream_info(self._stream)
        except NotFoundError:
            config = StreamConfig(
                name=self._stream,
                subjects=[f"{self._prefix}.events.>", f"{self._prefix}.to.>"],
                max_age=AGE_SECONDS_MAX,
                duplicate_window=DEDUPE_SECONDS,
                discard=DiscardPolicy.OLD,
                max_msgs=self._messages_max,
                max_bytes=self._bytes_max,
            )
            await jetstream.add_stream(config)

    async def _on_disconnect(self) -> None:
        """Fail the batches in flight: their answers are lost."""
        for batch in self._in_flight.values():
            batch.fail("the connection broke")

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with suppress(OSError):  # the connection is lost already
                await client.close()


async def probe(url: str) -> str:
    """Describe the server in a sentence; Unavailable with the reason if it cannot be used.

    Nothing is changed: the first event creates a missing stream.
    """
    client: Any = None
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            client = await nats.connect(
                url,
                name="tenure doctor",
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0.1,
                error_cb=_ignore,
            )
        jetstream = client.jetstream(timeout=ANSWER_SECONDS)
        await jetstream.account_info()
        try:
            stream = await jetstream.stream_info(STREAM)
            state = f"stream {STREAM} has {stream.state.messages} events"
        except NotFoundError:
            state = f"the first event creates stream {STREAM}"
        release = str(client.connected_server_version).rpartition(" v")[2].rstrip(">")
        return f"NATS {release} with JetStream; {state}"
    except Exception as error:  # noqa: BLE001 (the client raises errors of any type)
        remedy = "check that it runs there with JetStream"
        message = f"NATS cannot be used ({_describe(error)}): {remedy}"
        raise Unavailable(message) from None
    finally:
        if client is not None:
            await client.close()


def _message_id(destination: Destination, event: Outgoing) -> str:
    """The id by which the server drops copies; each destination with a subject has its own."""
    return f"{event.id}/{destination.id}" if destination.target else event.id


def _token(name: str) -> str:
    return _NOT_ALLOWED.sub("_", name) or "_"


def _receipt(message: Any) -> Receipt:
    """Convert the server's answer to one message."""
    data = message.data
    if b'"error"' not in data and data:
        return DELIVERED
    if not data:  # no stream has this subject: it was deleted
        return Receipt(DeliveryVerdict.UNAVAILABLE, "no stream accepts this subject")
    problem = json.loads(data).get("error", {})
    return Receipt(DeliveryVerdict.UNAVAILABLE, str(problem.get("description", problem)))


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _ignore(_: Exception) -> None:
    """Do nothing: every failure that matters is in a receipt."""
