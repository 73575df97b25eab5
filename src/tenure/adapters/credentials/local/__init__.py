"""Credentials on one SQLite file of their own."""

from collections.abc import Callable
from pathlib import Path

from tenure.adapters.credentials.local.provider import TABLES, LocalCredentials
from tenure.ports.clock import Clock
from tenure.sqlite.commit_thread import WorkRunner
from tenure.sqlite.queries import read_queries
from tenure.sqlite.resource_file import open_resource_file

__all__ = ["LocalCredentials", "build"]

APPLICATION_ID = int.from_bytes(b"Tncr", "big")
_HERE = Path(__file__).parent


def build(
    path: Path | str,
    *,
    clock: Clock,
    flush: WorkRunner | None = None,
    free_bytes: Callable[[], int] | None = None,
) -> LocalCredentials:
    """Open the file, creating it if needed, and lock it until `close`.

    Raises a StoreError that names the problem; nothing was changed then.
    """
    queries = read_queries(_HERE / "queries")
    resources = open_resource_file(
        path,
        migrations=_HERE / "migrations",
        tables=TABLES,
        application_id=APPLICATION_ID,
        clock=clock,
        flush=flush,
        free_bytes=free_bytes,
    )
    return LocalCredentials(resources, queries)
