"""The state of a plane's epoch and pause in one process; `app.safety.epochs` changes it."""

import asyncio
from collections.abc import Mapping

from tenure.ports.epoch import EpochStorage, Memo, Watermark, WatermarkStorage

GENERATIONS_PER_EPOCH = 1_000_000
"""A restore raises the generation of every agent to at least its new epoch times this number.

So keys of the new epoch differ from all earlier keys.  The quotient of a generation and this number
is the epoch of the last restore; it is 0 for an agent that was never restored.
"""


class Pause:
    """The epoch of one process's plane, and why the plane is paused."""

    def __init__(
        self,
        epoch_storage: EpochStorage | None = None,
        watermarks: WatermarkStorage | None = None,
    ) -> None:
        """Read the memo from its storage; without one it is epoch 1 and the plane runs."""
        self._epoch_storage = epoch_storage
        self._watermarks = watermarks
        self.memo = (epoch_storage.read() if epoch_storage is not None else None) or Memo()
        self.confirmation = asyncio.Event()
        """Set when an operator has confirmed that the plane may continue."""
        self.must_restart = False
        """Whether the plane is in a later epoch or paused elsewhere, so that this process ends."""

    @property
    def epoch(self) -> int:
        """The epoch in which tokens are issued and valid."""
        return self.memo.epoch

    @property
    def why(self) -> str:
        """Why the plane is paused; empty if it is not."""
        return self.memo.pause_reason

    async def update_memo(self, **fields: object) -> None:
        """Change fields of the memo, on disk first; if that fails, memory is unchanged."""
        if self._epoch_storage is not None:
            epoch = self.memo._replace(**fields).epoch  # type: ignore[arg-type]
            await self._epoch_storage.revise(lambda before: _newer_memo(before, epoch, fields))
        self.memo = self.memo._replace(**fields)  # type: ignore[arg-type]

    @property
    def has_watermarks(self) -> bool:
        """Whether there is a place outside the store for a watermark."""
        return self._watermarks is not None

    def read_watermark(self) -> Watermark | None:
        """The newest watermark of this epoch that a process of the home has written."""
        found = None if self._watermarks is None else self._watermarks.read()
        return None if found is None or found[0] != self.epoch else found[1]

    async def write_watermark(self, watermark: Watermark) -> None:
        """Write a watermark of this epoch, for every process of the home."""
        if self._watermarks is not None:
            await self._watermarks.write(self.epoch, watermark)


def _newer_memo(before: Memo | None, epoch: int, fields: Mapping[str, object]) -> Memo | None:
    """The memo to write; None if the one on disk is newer: other processes write it too."""
    last = before or Memo()
    if last.epoch > epoch:
        return None
    after = last._replace(**fields)  # type: ignore[arg-type]
    if last.epoch == after.epoch and last.position > after.position:
        after = after._replace(position=last.position, head=last.head)
    return None if after == before else after
