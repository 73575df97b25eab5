"""What a plane stores outside its database, so that it notices a restored older copy.

The epoch is a number that rises with every restore.  Tokens of a smaller epoch are void.
An agent has an epoch of its own, which counts how often it was closed: `AgentRecord.epoch`.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Memo(NamedTuple):
    """The contents of the file; the first epoch is 1."""

    epoch: int = 1
    pause_reason: str = ""
    """Why the plane is paused until an operator confirms; empty: it is not paused."""
    restoring: str = ""
    """The backup that is being restored; a plane does not start on a half-restored store."""
    position: int = 0
    """The number of an audit log entry that existed; `head` is its hash."""
    head: str = ""


class Watermark(NamedTuple):
    """A commit that a shared store has acknowledged; see `tenure.app.safety.watermark`."""

    number: int
    """A counter of the store: it rises in the order of commits."""
    at: float
    """When it was committed, by the store's clock."""
    word: str
    """Random, so that two servers that count on from one copy have different watermarks."""


class EpochStorage(Protocol):
    """A file that a restore of the store does not change."""

    def read(self) -> Memo | None:
        """The contents; None if the file does not exist."""
        ...

    def write(self, memo: Memo) -> None:
        """Replace the contents; they are on disk when this returns."""
        ...

    async def revise(self, compute: Callable[[Memo | None], Memo | None]) -> None:
        """Replace the contents by `compute(contents)` under a lock; None: leave them.

        `compute` may be called in another thread.
        """
        ...


class WatermarkStorage(Protocol):
    """A file that a restore of the store does not change."""

    def read(self) -> tuple[int, Watermark] | None:
        """The newest watermark and its epoch; None if there is none."""
        ...

    async def write(self, epoch: int, watermark: Watermark) -> None:
        """Write this watermark unless a newer one is stored; it is on disk when this returns."""
        ...
