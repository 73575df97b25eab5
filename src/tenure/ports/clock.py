"""The clock: the one source of time outside a store."""

from typing import Protocol


class Clock(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.clock`."""

    def now(self) -> float:
        """Seconds since the epoch; may step when the machine is set, unless it is steady."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        ...
