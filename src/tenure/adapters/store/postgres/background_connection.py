"""A background connection: notifications between processes, the clock, deletion of old batches.

A wake hint tells other processes which operation has changed.  It is sent after its change is
durable, outside its transaction, because the server commits transactions with a NOTIFY one at a
time, which would serialize the writers.  So a hint can be lost with its process; every engine also
polls.
"""

import asyncio
import logging
from collections.abc import Callable

import asyncpg

from tenure.adapters.store.postgres import server
from tenure.adapters.store.postgres.clock import ServerClock
from tenure.adapters.store.postgres.history import History
from tenure.concurrency import cancel_and_wait
from tenure.core.errors import StoreRewound
from tenure.ports.store import WakeHint

log = logging.getLogger("tenure.store")
CHECK_SECONDS = 10.0
"""Interval of the checks of the server's clock and history."""
BATCH_SECONDS = 600.0
"""How long a batch row is kept for look-ups; a commit is in doubt for a far shorter time."""
PAYLOAD_BYTES_MAX = 7_900
RECONNECT_SECONDS = 0.5
INTERRUPT, UNCLAIMED = "!", "?"
"""Suffixes of an operation's id in a notification."""


class BackgroundConnection:
    """Exchanges wake hints and synchronizes the clock; reconnects after a lost connection."""

    def __init__(
        self,
        address: server.Address,
        *,
        clock: ServerClock,
        now: Callable[[], float],
        delete_batches: str,
        sender: str,
        history: History,
    ) -> None:
        """`delete_batches` is SQL; `sender` is this process's id in notifications."""
        self._address = address
        self._clock = clock
        self._now = now
        self._delete_batches = delete_batches
        self._history = history
        self._channel = f"tenure_{address.schema}"
        self._sender = sender
        self._wake_hints: dict[str, str] = {}
        self._has_hints = asyncio.Event()
        self._on_wake_hint: Callable[[WakeHint], None] | None = None
        self._task = asyncio.create_task(self._run(), name="tenure store background")

    def listen(self, on_wake_hint: Callable[[WakeHint], None]) -> None:
        """Call `on_wake_hint` for the hints of other processes."""
        self._on_wake_hint = on_wake_hint

    def send(self, wake_hint: WakeHint) -> None:
        """Notify other processes soon."""
        for one in (wake_hint, *wake_hint.others):
            marks = self._wake_hints.get(one.operation, "")
            for mark, is_set in ((INTERRUPT, one.interrupt), (UNCLAIMED, one.unclaimed)):
                marks += mark if is_set and mark not in marks else ""
            self._wake_hints[one.operation] = marks
        self._has_hints.set()

    async def close(self) -> None:
        """Stop; hints that were not sent are replaced by the polls of other processes."""
        await cancel_and_wait(self._task)

    async def _run(self) -> None:
        is_lost = False
        while True:
            connection = None
            try:
                name = f"tenure side {self._sender}"
                connection = await server.connect(self._address, name, history=self._history)
                # Deletions need not wait for a standby, which may be down for hours.
                await connection.execute("SET synchronous_commit = off")
                await connection.add_listener(self._channel, self._on_notify)
                if is_lost:
                    log.warning("PostgreSQL answers again: processes notify each other again")
                is_lost = False
                await self._serve(connection)
            except (asyncpg.PostgresError, *server.LOST_CONNECTION_ERRORS) as error:
                if not is_lost:  # logged once: an outage may last for hours
                    log.warning("processes cannot notify each other (%s); reconnecting", error)
                is_lost = True
                await asyncio.sleep(RECONNECT_SECONDS)
            except StoreRewound as error:
                log.critical("%s This process reads and writes nothing more.", error)
                return
            finally:
                if connection is not None:
                    connection.terminate()

    async def _serve(self, connection: asyncpg.Connection) -> None:
        """Send hints as they come; check the server and delete old batches at each interval."""
        loop = asyncio.get_running_loop()
        check_at = loop.time()
        while True:
            if loop.time() >= check_at:
                check_at = loop.time() + CHECK_SECONDS
                async with asyncio.timeout(server.STATEMENT_SECONDS):
                    await self._history.check(connection)
                    await self._clock.synchronize(connection)
                    await connection.execute(self._delete_batches, self._now() - BATCH_SECONDS)
            try:
                async with asyncio.timeout(max(0.0, check_at - loop.time())):
                    await self._has_hints.wait()
            except TimeoutError:
                continue
            self._has_hints.clear()
            wake_hints, self._wake_hints = self._wake_hints, {}
            for payload in _payloads(self._sender, wake_hints):
                async with asyncio.timeout(server.STATEMENT_SECONDS):
                    await connection.execute("SELECT pg_notify($1, $2)", self._channel, payload)

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        sender, *words = str(payload).split()
        if sender == self._sender or self._on_wake_hint is None:
            return
        for word in words:
            name = word.rstrip(INTERRUPT + UNCLAIMED)
            marks = word[len(name) :]
            self._on_wake_hint(WakeHint(name, INTERRUPT in marks, UNCLAIMED in marks))


def _payloads(sender: str, wake_hints: dict[str, str]) -> list[str]:
    """`sender operation operation! …`, each as long as a notification may be."""
    payloads: list[str] = []
    line = sender
    for operation, marks in wake_hints.items():
        word = f" {operation}{marks}"
        if len(line) + len(word) > PAYLOAD_BYTES_MAX:
            payloads.append(line)
            line = sender
        line += word
    return [*payloads, line]
