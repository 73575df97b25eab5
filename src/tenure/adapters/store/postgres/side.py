"""What runs beside the work, on one connection: wake-ups between processes, the clock, tidying.

A ring is sent after its change is durable, outside of its transaction: the server lets only one
transaction that notifies commit at a time, which would undo what several writers gain.  So a ring
can be lost with the process that should have sent it; it is a hint, and everybody looks round.
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
from tenure.ports.store import Ring

log = logging.getLogger("tenure.store")
LOOK_SECONDS = 10.0
"""Between two looks at the server's clock."""
KEPT_SECONDS = 600.0
"""For how long a batch can be looked up: far longer than anybody is in doubt about one."""
PAYLOAD_BYTES_MAX = 7_900
PAUSE_SECONDS = 0.5
INTERRUPT, UNCLAIMED = "!", "?"
"""Marks behind an operation in a notification."""


class SideConnection:
    """Rings others, hears them, and keeps the clock; a lost connection is made anew."""

    def __init__(
        self,
        address: server.Address,
        *,
        clock: ServerClock,
        now: Callable[[], float],
        forget: str,
        fresh: str,
        history: History,
    ) -> None:
        self._address = address
        self._clock = clock
        self._now = now
        self._forget = forget
        self._history = history
        self._channel = f"tenure_{address.schema}"
        self._me = fresh
        self._rings: dict[str, str] = {}
        self._due = asyncio.Event()
        self._heard: Callable[[Ring], None] | None = None
        self._task = asyncio.create_task(self._keep(), name="tenure store side")

    def listen(self, heard: Callable[[Ring], None]) -> None:
        """Call this for the rings of other processes."""
        self._heard = heard

    def ring(self, ring: Ring) -> None:
        """Tell other processes, soon."""
        for one in (ring, *ring.others):
            marks = self._rings.get(one.operation, "")
            for mark, said in ((INTERRUPT, one.interrupt), (UNCLAIMED, one.unclaimed)):
                marks += mark if said and mark not in marks else ""
            self._rings[one.operation] = marks
        self._due.set()

    async def close(self) -> None:
        """Stop; what was not sent yet is found by the polls of others."""
        await cancel_and_wait(self._task)

    async def _keep(self) -> None:
        lost = False
        while True:
            connection = None
            try:
                name = f"tenure side {self._me}"
                connection = await server.connect(self._address, name, history=self._history)
                # What is deleted here need not be on a standby, which may be away for hours.
                await connection.execute("SET synchronous_commit = off")
                await connection.add_listener(self._channel, self._hear)
                if lost:
                    log.warning("PostgreSQL answers again: wake-ups between processes go on")
                lost = False
                await self._serve(connection)
            except (asyncpg.PostgresError, *server.GONE) as error:
                if not lost:  # once: it may be away for hours
                    log.warning(
                        "no wake-ups between processes (%s); PostgreSQL is tried again", error
                    )
                lost = True
                await asyncio.sleep(PAUSE_SECONDS)
            except StoreRewound as error:
                log.critical("%s This process reads and writes nothing more.", error)
                return
            finally:
                if connection is not None:
                    connection.terminate()

    async def _serve(self, connection: asyncpg.Connection) -> None:
        """Send wake-ups as they come; now and then check the server, delete old batches."""
        loop = asyncio.get_running_loop()
        look_at = loop.time()
        while True:
            if loop.time() >= look_at:
                look_at = loop.time() + LOOK_SECONDS
                async with asyncio.timeout(server.STATEMENT_SECONDS):
                    await self._history.check(connection)
                    await self._clock.synchronize(connection)
                    await connection.execute(self._forget, self._now() - KEPT_SECONDS)
            try:
                async with asyncio.timeout(max(0.0, look_at - loop.time())):
                    await self._due.wait()
            except TimeoutError:
                continue
            self._due.clear()
            rings, self._rings = self._rings, {}
            for payload in _payloads(self._me, rings):
                async with asyncio.timeout(server.STATEMENT_SECONDS):
                    await connection.execute("SELECT pg_notify($1, $2)", self._channel, payload)

    def _hear(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        sender, *words = str(payload).split()
        if sender == self._me or self._heard is None:
            return
        for word in words:
            name = word.rstrip(INTERRUPT + UNCLAIMED)
            marks = word[len(name) :]
            self._heard(Ring(name, INTERRUPT in marks, UNCLAIMED in marks))


def _payloads(sender: str, rings: dict[str, str]) -> list[str]:
    """`sender operation operation! …`, each as long as a notification may be."""
    payloads: list[str] = []
    line = sender
    for operation, marks in rings.items():
        word = f" {operation}{marks}"
        if len(line) + len(word) > PAYLOAD_BYTES_MAX:
            payloads.append(line)
            line = sender
        line += word
    return [*payloads, line]
