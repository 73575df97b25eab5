"""What a plane remembers outside its store, so that an older copy of the store is noticed.

The epoch rises with every restore and never falls: whatever was issued under a smaller one is void.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Memo(NamedTuple):
    """What is remembered, whole; the first epoch is 1."""

    epoch: int = 1
    held: str = ""
    """Why nothing may move until an operator confirms; empty: nothing holds the plane."""
    restoring: str = ""
    """The backup that is being put in place; a plane does not start over half of one."""
    position: int = 0
    """A line of the audit log that was there, and its hash below."""
    head: str = ""


class Watermark(NamedTuple):
    """What a shared store was seen to have: `tenure.app.safety.watermark` raises it."""

    number: int
    """Counted in the store, so it rises in the order of commits."""
    at: float
    """When it was committed, by the store's clock."""
    word: str
    """Random: two servers that both count on give the same number to different watermarks."""


class EpochStorage(Protocol):
    """Somewhere that a restore of the store does not reach."""

    def read(self) -> Memo | None:
        """What was last written; None if nothing ever was."""
        ...

    def write(self, memo: Memo) -> None:
        """Remember this: when it returns it is on disk, whole."""
        ...

    async def revise(self, revised: Callable[[Memo | None], Memo | None]) -> None:
        """Write what this makes of what was last written, if anything, with nobody between.

        It may be called in another thread.
        """
        ...


class WatermarkStorage(Protocol):
    """Somewhere that a restore of the store does not reach, as above."""

    def read(self) -> tuple[int, Watermark] | None:
        """The newest watermark that was written, and the epoch that it is of; None: none was."""
        ...

    async def write(self, epoch: int, watermark: Watermark) -> None:
        """Remember this one, if none that is newer was written; it is on disk then."""
        ...
