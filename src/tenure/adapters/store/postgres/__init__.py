"""The store on PostgreSQL 14 or newer, which any number of processes can use at the same time."""

from collections.abc import Callable

import asyncpg

from tenure.adapters.store.postgres import schema, server
from tenure.adapters.store.postgres.background_connection import BackgroundConnection
from tenure.adapters.store.postgres.clock import ServerClock
from tenure.adapters.store.postgres.committer import RESERVE_BYTES, PoolSettings, PostgresCommitter
from tenure.adapters.store.postgres.functions import Functions
from tenure.adapters.store.postgres.history import History
from tenure.adapters.store.postgres.move_target import refuse_incomplete_move
from tenure.adapters.store.postgres.probe import inspect_server, read_row
from tenure.adapters.store.postgres.readers import Readers
from tenure.adapters.store.postgres.replication import inspect_replication
from tenure.adapters.store.postgres.store import PostgresStore
from tenure.core.ids import uuid7
from tenure.ports.clock import Clock
from tenure.ports.entropy import Entropy
from tenure.sqlite.migrations import read_migrations
from tenure.sqlite.queries import read_queries

__all__ = [
    "RESERVE_BYTES", "PoolSettings", "PostgresStore", "build", "inspect_replication",
    "inspect_server", "read_row",
]  # fmt: skip


async def build(
    url: str,
    *,
    clock: Clock,
    entropy: Entropy,
    schema_name: str = "",
    pool: PoolSettings | None = None,
    free_bytes: Callable[[], int] | None = None,
    on_durable: Callable[[], None] | None = None,
    own_clock: bool = False,
) -> PostgresStore:
    """Open the schema that the URL names (`?schema=tenure`), and create it if it does not exist.

    The store's time is the server's; `clock` counts the seconds between two synchronizations.  With
    `own_clock`, for tests that control time, `clock` is the store's time.  `free_bytes` returns the
    free bytes of the server's disk, if they are known.  Raises a StoreError that names the problem;
    nothing was changed then.
    """
    pool = pool or PoolSettings()
    address = server.read_address(url, schema_name)
    server_clock = ServerClock(clock.monotonic)
    try:
        connection = await server.connect(address, "tenure opening", standby=True)
        try:
            await server.check_server(connection)
            await refuse_incomplete_move(connection, address)
            migrations = read_migrations(schema.FOLDER / "migrations")
            await schema.migrate(connection, address, migrations)
            await schema.shift_positions_after_restore(connection)
            types = await schema.read_types(connection, address.schema)
            await server_clock.synchronize(connection)
        finally:
            await server.close(connection)
    except (asyncpg.PostgresError, *server.LOST_CONNECTION_ERRORS, ValueError) as error:
        raise server.translate_error(error, address) from None
    now = clock.now if own_clock else server_clock.now
    queries = read_queries(schema.FOLDER / "queries")

    def new_id() -> str:
        return uuid7(now(), entropy.bits())

    functions, history = Functions(types, uses_server_time=not own_clock), History()
    committer = PostgresCommitter(
        address, functions, now=now, new_id=new_id, pool=pool, history=history,
        free_bytes=free_bytes, on_durable=on_durable,
    )  # fmt: skip
    readers = Readers(
        address, count=pool.readers, patience_seconds=pool.patience_seconds, history=history
    )
    background = BackgroundConnection(
        address, clock=server_clock, now=now, delete_batches=queries["forget_batches"],
        sender=new_id(), history=history,
    )  # fmt: skip
    return PostgresStore(
        committer, readers, background, queries, now=now, uses_server_time=not own_clock
    )
