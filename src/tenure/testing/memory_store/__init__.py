"""The store in memory: every promise but the disk; several handles can share one set of tables."""

from tenure.ports.clock import Clock
from tenure.testing.memory_store.store import MemoryStore
from tenure.testing.memory_store.tables import Tables

__all__ = ["MemoryStore", "Tables", "build"]


def build(*, clock: Clock, tables: Tables | None = None) -> MemoryStore:
    """A handle on these tables, or on new ones: one process, which can be killed alone."""
    return MemoryStore(Tables() if tables is None else tables, clock=clock)
