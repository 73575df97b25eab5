"""The store on one SQLite file: full durability, group commit, one process at a time."""

from collections.abc import Callable
from pathlib import Path

import apsw

from tenure.adapters.store.sqlite.store import SqliteStore
from tenure.core.errors import StoreError
from tenure.core.records import TABLES
from tenure.ports.clock import Clock
from tenure.sqlite.commit_thread import InlineRunner, ThreadRunner, WorkRunner
from tenure.sqlite.committer import Committer
from tenure.sqlite.durable_file import open_file
from tenure.sqlite.migrations import read_migrations
from tenure.sqlite.queries import read_queries

__all__ = ["SqliteStore", "build"]

_HERE = Path(__file__).parent


def build(
    path: Path | str,
    *,
    clock: Clock,
    flush: WorkRunner | None = None,
    read_thread: WorkRunner | None = None,
    free_bytes: Callable[[], int] | None = None,
    on_durable: Callable[[], None] | None = None,
) -> SqliteStore:
    """Open the file, creating it if needed, and lock it until `close`.

    `flush` runs COMMIT and `read_thread` runs long reads. By default each has a thread for this
    file; if only `flush` is given, reads run on the event loop. `free_bytes` returns the free bytes
    of the disk. `on_durable` is called after each commit. Raises a StoreError that names the
    problem; nothing was changed then.
    """
    file = open_file(path, read_migrations(_HERE / "migrations"))
    try:
        queries = read_queries(_HERE / "queries")
        file.writer.execute(queries["drop_worker_leases"])
        if read_thread is None:
            read_thread = (
                ThreadRunner(f"read {file.path.name}") if flush is None else InlineRunner()
            )
        flush = ThreadRunner(f"commit {file.path.name}") if flush is None else flush
        file.writer.execute(queries["lapse_leader_leases"])
        committer = Committer(
            file.writer,
            TABLES,
            flush=flush,
            free_bytes=free_bytes or file.free_bytes,
            on_durable=on_durable,
        )
        return SqliteStore(
            file, committer, queries, clock=clock, flush=flush, read_thread=read_thread
        )
    except BaseException as error:
        file.close()
        if isinstance(error, apsw.Error):
            sentence = f"{file.path} cannot be used ({error}): no record was changed."
            raise StoreError(sentence) from None
        raise
