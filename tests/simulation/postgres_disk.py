"""A real PostgreSQL under a simulated plane: its store lives on a real loop, in another thread.

The plane's loop stands still while the server answers, so a call takes no virtual time.  What is
asked at the same instant is sent before anybody waits, so that it shares batches and connections.
A killed process leaves without a word: its connections are cut, and what it has sent arrives.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, Self, TypeVar, cast

import asyncpg

from tenure.adapters.clock.system import SystemEntropy
from tenure.adapters.store import postgres
from tenure.adapters.store.postgres import server
from tenure.core.records import TABLES
from tenure.ports.clock import Clock
from tenure.ports.store import Store, WakeHint

ANSWER_SECONDS = 60.0
"""Real ones, after which a server that says nothing has failed the test."""
POOL = postgres.PoolSettings(writers=2, readers=2)
T = TypeVar("T")


async def empty(url: str) -> None:
    """Forget every row of this schema, which so serves for many cases: to make one takes longer."""
    connection = await server.connect(server.read_address(url, ""), "tenure test", {})
    try:
        await connection.execute("SET session_replication_role = replica")  # no triggers
        for table in (*TABLES, "batch", "counter"):
            await connection.execute(f"DELETE FROM {table}")
    except asyncpg.UndefinedTableError:
        pass  # nobody has made them yet
    finally:
        await server.close(connection)


class RealLoop:
    """A loop in a thread, and every store that was opened on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.stores: list[postgres.PostgresStore] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self.clear())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start this there."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Have this done there; everything here stands still meanwhile."""
        return self.begin(work).result(ANSWER_SECONDS)

    async def open(self, clock: Clock) -> postgres.PostgresStore:
        store = await postgres.build(
            self.url, clock=clock, entropy=SystemEntropy(), pool=POOL, own_clock=True
        )
        self.stores.append(store)
        return store

    async def cut(self, store: postgres.PostgresStore) -> None:
        """Let go of every connection as a killed process does."""
        self.stores.remove(store)
        for session in filter(None, store._committer._writers._sessions):
            session.connection.terminate()
        for connection in store._readers._free:
            connection.terminate()
        await store._background.close()

    async def clear(self) -> None:
        """Cut whoever is left, and forget every row."""
        for store in list(self.stores):
            await self.cut(store)
        await empty(self.url)


class BridgedStore:
    """A store on the real loop, asked from a virtual one."""

    def __init__(self, real: RealLoop, store: postgres.PostgresStore) -> None:
        self.store = store
        self.now = store.now
        self.under_way: set[Future[Any]] = set()
        self._real = real

    def listen(self, listener: Callable[[WakeHint], None]) -> None:
        """A wake hint may be lost: none is carried over."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        verb = getattr(self.store, name)

        async def run_verb(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
            return await verb(*given, **named)

        async def ask(*args: Any, **kwargs: Any) -> Any:
            asked = self._real.begin(run_verb(args, kwargs))
            self.under_way.add(asked)
            asked.add_done_callback(self.under_way.discard)
            await asyncio.sleep(0)  # whoever asks at this instant does so before anyone waits
            return asked.result(ANSWER_SECONDS)

        return ask


class PostgresDisk:
    """See `proofs.harness.cluster.Disk`."""

    def __init__(self, real: RealLoop, clock: Clock) -> None:
        self._real = real
        real.do(real.clear())
        self._observer = self.open(clock)

    def open(self, clock: Clock) -> Store:
        return cast(Store, BridgedStore(self._real, self._real.do(self._real.open(clock))))

    def kill(self, store: Store) -> None:
        assert isinstance(store, BridgedStore)
        wait(list(store.under_way), ANSWER_SECONDS)
        if store.store in self._real.stores:  # it was killed or closed before
            self._real.do(self._real.cut(store.store))

    def observer(self) -> Store:
        """A store of nobody's process."""
        return self._observer
