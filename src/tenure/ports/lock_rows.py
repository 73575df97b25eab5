"""The rows of locks: the columns `generation`, `operation` and `next` of the table `agent`.

Every operation locks a row of that table.  This module builds the writes that change nothing but
the lock.  `tenure.app.agents.agent_rows` builds the others: they change an agent.
"""

from tenure.ports.store import PreparedWrite, Set

NEW_LOCK = PreparedWrite("agent", ("uid",), ("tenant", "generation", "operation"), adds=True)
"""A lock without an agent, which an operation holds from the start."""


def take_lock(uid: str, operation: str, *, generation: int) -> Set:
    """Give a free lock to a new operation, which makes this generation."""
    return Set("agent", (uid,), {"generation": generation, "operation": operation})


def wait_for_lock(uid: str, operation: str, *, generation: int) -> Set:
    """Let a new operation, which makes this generation, wait for the lock."""
    return Set("agent", (uid,), {"generation": generation, "next": operation})


def pass_lock(uid: str, operation: str) -> Set:
    """Give a free lock to the operation that waited for it."""
    return Set("agent", (uid,), {"operation": operation, "next": None})


def release_lock(uid: str) -> Set:
    """Free the lock of an operation that has ended."""
    return Set("agent", (uid,), {"operation": None})
