"""The store in memory: every promise but the disk; several handles can share one set of tables."""

from tenure.adapters.store.memory.store import MemoryStore
from tenure.adapters.store.memory.tables import Tables
from tenure.ports.clock import Clock

__all__ = ["MemoryStore", "Tables", "build"]


def build(*, clock: Clock, tables: Tables | None = None) -> MemoryStore:
    """A handle on these tables, or on new ones: one process, which can be killed alone."""
    return MemoryStore(Tables() if tables is None else tables, clock=clock)
