"""The clock: the source of time for all code that does not use the store's clock."""

from typing import Protocol


class Clock(Protocol):
    """Every promise here is a test in `tenure.testing.contracts.clock`."""

    def now(self) -> float:
        """Seconds since 1970; can jump when the machine's clock is set, unless it is steady."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences between two values have a meaning."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after at least `seconds`."""
        ...
