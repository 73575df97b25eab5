"""Stores: `sqlite` and `postgres`.  The in-memory store is `tenure.testing.memory_store`."""
