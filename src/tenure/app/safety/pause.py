"""Which epoch a plane is in, and whether it is paused.  `app.safety.epochs` acts on it."""

import asyncio
from collections.abc import Mapping

from tenure.ports.epoch import EpochKeeper, Memo

SPAN = 1_000_000
"""Generations of one agent in one epoch: the millions are the epoch it was raised to, if it was."""


class Pause:
    """The epoch of one process's plane, and what holds it."""

    def __init__(self, keeper: EpochKeeper | None = None) -> None:
        """As the keeper remembers it; without one it is the first epoch, and nothing holds."""
        self._keeper = keeper
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


def _revised(before: Memo | None, epoch: int, said: Mapping[str, object]) -> Memo | None:
    """What is to be written: other processes of this home write too, and nothing falls."""
    last = before or Memo()
    if last.epoch > epoch:
        return None
    after = last._replace(**said)  # type: ignore[arg-type]
    if last.epoch == after.epoch and last.position > after.position:
        after = after._replace(position=last.position, head=last.head)
    return None if after == before else after
