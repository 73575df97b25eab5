"""Which epoch a plane is in, and whether it is paused.  `app.safety.epochs` acts on it."""

import asyncio
from collections.abc import Mapping

from tenure.ports.epoch import EpochKeeper, Memo, Watermark, WatermarkKeeper

SPAN = 1_000_000
"""Generations of one agent in one epoch: the millions are the epoch it was raised to, if it was."""


class Pause:
    """The epoch of one process's plane, and what holds it."""

    def __init__(
        self, keeper: EpochKeeper | None = None, watermarks: WatermarkKeeper | None = None
    ) -> None:
        """As the keeper remembers it; without one it is the first epoch, and nothing holds."""
        self._keeper = keeper
        self._watermarks = watermarks
        self.memo = (keeper.read() if keeper is not None else None) or Memo()
        self.let_go = asyncio.Event()
        """Set when an operator has confirmed."""
        self.is_over = False
        """Whether this process has let go of a plane that went on elsewhere, and must end."""

    @property
    def epoch(self) -> int:
        """The epoch that things are issued in, and good in."""
        return self.memo.epoch

    @property
    def why(self) -> str:
        """Why nothing may move; empty: it may."""
        return self.memo.held

    async def remember(self, **said: object) -> None:
        """Change what is remembered, on disk first: what cannot be written is not so here."""
        if self._keeper is not None:
            epoch = self.memo._replace(**said).epoch  # type: ignore[arg-type]
            await self._keeper.revise(lambda before: _revised(before, epoch, said))
        self.memo = self.memo._replace(**said)  # type: ignore[arg-type]

    @property
    def has_watermarks(self) -> bool:
        """Whether there is a place outside the store for a watermark."""
        return self._watermarks is not None

    def read_watermark(self) -> Watermark | None:
        """The newest one of this epoch, as some process of the home wrote it."""
        found = None if self._watermarks is None else self._watermarks.read()
        return None if found is None or found[0] != self.epoch else found[1]

    async def write_watermark(self, watermark: Watermark) -> None:
        """Write one of this epoch, for every process of the home."""
        if self._watermarks is not None:
            await self._watermarks.write(self.epoch, watermark)


def _revised(before: Memo | None, epoch: int, said: Mapping[str, object]) -> Memo | None:
    """What is to be written: other processes of this home write too, and nothing falls."""
    last = before or Memo()
    if last.epoch > epoch:
        return None
    after = last._replace(**said)  # type: ignore[arg-type]
    if last.epoch == after.epoch and last.position > after.position:
        after = after._replace(position=last.position, head=last.head)
    return None if after == before else after
