"""Lets the processes of one plane tell each other which agents have invocations in flight.

The drain of a suspend or delete waits for the invocations of all processes.
"""

from typing import Protocol


class InFlightMarks(Protocol):
    """Every promise here is a test in `tests/unit/adapters/provider_host/unix/test_marks.py`."""

    def mark_in_flight(self, agent: str) -> None:
        """Mark that this process has invocations of the agent in flight."""
        ...

    def clear_in_flight(self, agent: str) -> None:
        """Remove that mark.  The marks of a process disappear when it ends."""
        ...

    def request_abort(self, agent: str) -> None:
        """Ask other processes to abort their invocations of the agent, until `withdraw_abort`."""
        ...

    def withdraw_abort(self, agent: str) -> None:
        """Withdraw that request."""
        ...

    def is_abort_requested(self, agent: str) -> bool:
        """Whether another process asks this one to abort its invocations of the agent."""
        ...

    def is_in_flight_elsewhere(self, agent: str) -> bool:
        """Whether another process has invocations of the agent in flight."""
        ...
