"""Events by NATS JetStream: stored by the server before we take them as delivered.

The event's id is its message id, so that the server drops a second copy within its window.  The
stream is made, with bounds, if it is not there.  A subject says whose event it is: `events`,
tenant, agent and type for everything; `to`, tenant, the subscription's own subject, agent and type
for a subscription, so that no tenant can write under another's name.
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
BREATH: Final = 32
"""Messages written before others have the loop."""
TOO_LARGE: Final = "the server takes no message of this size"
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")


class _Batch:
    """Messages that are out together, and what is known of each."""

    def __init__(self, size: int) -> None:
        self._told: list[Receipt | None] = [None] * size
        self._left = size
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._why = f"no answer within {ANSWER_SECONDS:g} s"

    def answer(self, place: int, receipt: Receipt) -> None:
        if self._told[place] is None:
            self._told[place] = receipt
            self._left -= 1
            if not self._left and not self._done.done():
                self._done.set_result(None)

    def fail(self, why: str) -> None:
        """Nothing more is heard of the rest."""
        self._why = why
        if not self._done.done():
            self._done.set_result(None)

    async def answered(self, seconds: float) -> None:
        if self._left:
            await asyncio.wait([self._done], timeout=seconds)

    def receipts(self) -> list[Receipt]:
        unheard = Receipt(DeliveryVerdict.UNAVAILABLE, self._why)
        return [one or unheard for one in self._told]


class NatsBus:
    """Keeps the promises of `tenure.ports.bus.Bus` on one NATS server."""

    def __init__(
        self,
        url: str,
        *,
        stream: str = STREAM,
        prefix: str = PREFIX,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """Connect at the first event."""
        self._url = url
        self._stream = stream
        self._prefix = prefix
        self._messages_max, self._bytes_max = messages_max, bytes_max
        self._client: Any = None
        self._ready = False
        self._inbox = ""
        self._number = 0
        self._out: dict[int, _Batch] = {}
        """Batches of whose storage not all was heard yet."""
        self._lock = asyncio.Lock()
        self._closed = False

    async def publish(
        self, destination: Destination, events: Sequence[Outgoing]
    ) -> Sequence[Receipt]:
        """All at once; each is delivered when the server says that it is stored."""
        try:
            client = await self._connected()
        except Exception as error:  # noqa: BLE001 (the client raises whatever went wrong on the way)
            return [Receipt(DeliveryVerdict.UNAVAILABLE, _words(error))] * len(events)
        batch = _Batch(len(events))
        self._number += 1
        number = self._number
        self._out[number] = batch
        try:
            for place, event in enumerate(events):
                if place % BREATH == BREATH - 1:
                    await asyncio.sleep(0)
                if len(event.body) > client.max_payload:
                    batch.answer(place, Receipt(DeliveryVerdict.REFUSED, TOO_LARGE))
                    continue
                await client.publish(
                    self.subject(destination, event),
                    event.body,
                    reply=f"{self._inbox}.{number}.{place}",
                    headers={"Nats-Msg-Id": _message_id(destination, event)},
                )
            await batch.answered(ANSWER_SECONDS)
        except Exception as error:  # noqa: BLE001 (as above)
            batch.fail(_words(error))
        finally:
            del self._out[number]
        return batch.receipts()

    async def _answered(self, message: Any) -> None:
        """The server has said something about one message: where it is stored, or why not."""
        *_, number, place = message.subject.split(".")
        batch = self._out.get(int(number))
        if batch is not None:
            batch.answer(int(place), _receipt(message))

    def subject(self, destination: Destination, event: Outgoing) -> str:
        """Where an event of this destination goes."""
        tenant, agent = _word(event.tenant), _word(event.agent)
        if destination.target:
            return f"{self._prefix}.to.{tenant}.{destination.target}.{agent}.{event.type}"
        return f"{self._prefix}.events.{tenant}.{agent}.{event.type}"

    async def _connected(self) -> Any:
        """The client, connected, and the stream there."""
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
                    error_cb=_ignored,
                    disconnected_cb=self._cut,
                )
                self._inbox = self._client.new_inbox()
                await self._client.subscribe(f"{self._inbox}.*.*", cb=self._answered)
                self._ready = False
            if not self._client.is_connected:
                raise ConnectionError("the server is not there")
            if not self._ready:
                await self._ensure()
                self._ready = True
            return self._client

    async def _ensure(self) -> None:
        """Make the stream if it is not there; one that is there is left as its owner has it."""
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

    async def _cut(self) -> None:
        """The connection broke: no answer comes to what is out."""
        for batch in self._out.values():
            batch.fail("the connection broke")

    async def close(self) -> None:
        """Hang up."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with suppress(OSError):  # it is gone already
                await client.close()


async def probe(url: str) -> str:
    """What the first event would find there, in a sentence; Unavailable says what is in its way.

    Nothing is changed: a stream that is missing is left to the first event.
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
                error_cb=_ignored,
            )
        jetstream = client.jetstream(timeout=ANSWER_SECONDS)
        await jetstream.account_info()
        try:
            told = await jetstream.stream_info(STREAM)
            state = f"stream {STREAM} holds {told.state.messages} events"
        except NotFoundError:
            state = f"the first event makes stream {STREAM}"
        release = str(client.connected_server_version).rpartition(" v")[2].rstrip(">")
        return f"NATS {release} with JetStream; {state}"
    except Exception as error:  # noqa: BLE001 (the client raises whatever went wrong on the way)
        message = f"NATS cannot be used ({_words(error)}): see that it runs there with JetStream"
        raise Unavailable(message) from None
    finally:
        if client is not None:
            await client.close()


def _message_id(destination: Destination, event: Outgoing) -> str:
    """The server drops copies in a whole stream: what goes to two subjects is two messages."""
    return f"{event.id}/{destination.id}" if destination.target else event.id


def _word(name: str) -> str:
    return _ODD.sub("_", name) or "_"


def _receipt(message: Any) -> Receipt:
    """What the server has said of one message."""
    data = message.data
    if b'"error"' not in data and data:
        return DELIVERED
    if not data:  # nobody listens on the subject: the stream is gone
        return Receipt(DeliveryVerdict.UNAVAILABLE, "no stream takes this subject")
    told = json.loads(data).get("error", {})
    return Receipt(DeliveryVerdict.UNAVAILABLE, str(told.get("description", told)))


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


async def _ignored(_: Exception) -> None:
    """Every failure that matters is a receipt."""
