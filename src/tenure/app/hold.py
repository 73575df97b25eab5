"""Which epoch a plane is in, and whether it is held; what is done about it is in `app.epochs`."""

import asyncio

from tenure.ports.epoch import EpochKeeper, Kept


class Hold:
    """The epoch of one process's plane, and what holds it."""

    def __init__(self, keeper: EpochKeeper | None = None) -> None:
        """As the keeper remembers it; without one it is the first epoch, and nothing holds."""
        self._keeper = keeper
        read = keeper.read() if keeper is not None else None
        self.is_new = read is None
        self.kept = read or Kept()
        self.let_go = asyncio.Event()
        """Set when an operator has confirmed."""

    @property
    def epoch(self) -> int:
        """The epoch that things are issued in, and good in."""
        return self.kept.epoch

    @property
    def why(self) -> str:
        """Why nothing may move; empty: it may."""
        return self.kept.held

    def remember(self, **said: object) -> None:
        """Change what is remembered; on disk when this returns."""
        kept = self.kept._replace(**said)  # type: ignore[arg-type]
        if self._keeper is not None and (kept != self.kept or self.is_new):
            self._keeper.write(kept)
        self.kept, self.is_new = kept, False
