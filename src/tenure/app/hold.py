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
        self.is_over = False
        """Whether this process has let go of a plane that went on elsewhere, and must end."""

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
        self.kept = self.kept._replace(**said)  # type: ignore[arg-type]
        if self._keeper is None:
            return
        # Other processes of this home write it too, and what they said of the rest stands.
        before = self._keeper.read() or Kept()
        after = before._replace(**said)  # type: ignore[arg-type]
        if before.epoch <= self.kept.epoch and (after != before or self.is_new):
            self._keeper.write(after)
        self.is_new = False
