"""The store on PostgreSQL (14 or newer): the same promises, for any number of processes at once."""

from collections.abc import Callable

import asyncpg

from tenure.adapters.store.postgres import schema, server
from tenure.adapters.store.postgres.clock import ServerClock
from tenure.adapters.store.postgres.committer import RESERVE_BYTES, Lanes, PostgresCommitter
from tenure.adapters.store.postgres.functions import Functions
from tenure.adapters.store.postgres.history import History
from tenure.adapters.store.postgres.landing import refuse_half_moved
from tenure.adapters.store.postgres.probe import inspect_server, read_row
from tenure.adapters.store.postgres.readers import Readers
from tenure.adapters.store.postgres.replication import look_at_replication
from tenure.adapters.store.postgres.side import SideConnection
from tenure.adapters.store.postgres.store import PostgresStore
from tenure.core.ids import uuid7
from tenure.ports.clock import Clock
from tenure.ports.entropy import Entropy
from tenure.sqlite.migrations import read_migrations
from tenure.sqlite.queries import read_queries

__all__ = [
    "RESERVE_BYTES", "Lanes", "PostgresStore", "build", "inspect_server", "look_at_replication",
    "read_row",
]  # fmt: skip


async def build(
    url: str,
    *,
    clock: Clock,
    entropy: Entropy,
    schema_name: str = "",
    lanes: Lanes | None = None,
    room: Callable[[], int] | None = None,
    on_durable: Callable[[], None] | None = None,
    own_clock: bool = False,
) -> PostgresStore:
    """Open the schema that the URL names (`?schema=tenure`), made if it is not there.

    The store's time is the server's; `clock` counts the seconds between two looks at it, and is
    the time itself with `own_clock`, for tests that move it.  `room` tells the free bytes of the
    server's disk, where somebody can.  Raises a StoreError that says what is the matter, with
    nothing touched.
    """
    lanes = lanes or Lanes()
    address = server.read_address(url, schema_name)
    server_clock = ServerClock(clock.monotonic)
    try:
        connection = await server.connect(address, "tenure opening", standby=True)
        try:
            await server.refuse_unfit(connection)
            await refuse_half_moved(connection, address)
            migrations = read_migrations(schema.HERE / "migrations")
            await schema.migrate(connection, address, migrations)
            await schema.go_on_after_restore(connection)
            types = await schema.read_types(connection, address.schema)
            await server_clock.synchronize(connection)
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.GONE, ValueError) as error:
        raise server.translate_error(error, address) from None
    now = clock.now if own_clock else server_clock.now
    queries = read_queries(schema.HERE / "queries")

    def fresh() -> str:
        return uuid7(now(), entropy.bits())

    functions, history = Functions(types, uses_server_time=not own_clock), History()
    committer = PostgresCommitter(
        address, functions, now=now, fresh=fresh, lanes=lanes, history=history, room=room,
        on_durable=on_durable,
    )  # fmt: skip
    readers = Readers(
        address, most=lanes.readers, patience_seconds=lanes.patience_seconds, history=history
    )
    side = SideConnection(
        address, clock=server_clock, now=now, forget=queries["forget_batches"], fresh=fresh(),
        history=history,
    )  # fmt: skip
    return PostgresStore(committer, readers, side, queries, now=now, judges=not own_clock)
