"""Marks: the processes of one plane tell each other which agents have invocations in flight.

The drain of a suspend or delete waits for the invocations of all processes.
"""

from typing import Protocol


class Marks(Protocol):
    """Every promise here is a test in `tests/unit/adapters/provider_host/unix/test_marks.py`."""

    def put(self, agent: str) -> None:
        """Mark that this process has invocations of the agent in flight."""
        ...

    def lift(self, agent: str) -> None:
        """Remove that mark.  The marks of a process disappear when it ends."""
        ...

    def cut(self, agent: str) -> None:
        """Ask all other processes to abort their invocations of the agent, until `spare`."""
        ...

    def spare(self, agent: str) -> None:
        """Withdraw that request."""
        ...

    def is_cut(self, agent: str) -> bool:
        """Whether another process asks this one to abort its invocations of the agent."""
        ...

    def is_elsewhere(self, agent: str) -> bool:
        """Whether another process has invocations of the agent in flight."""
        ...
