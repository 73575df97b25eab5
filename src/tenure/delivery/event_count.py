"""How many events are kept: counted once by whoever begins to lead, and followed from then on.

Only the leader drops events, so it knows what goes, and what comes it reads from the feed as all
others do.  It may know of some more than there are, those that come while it counts, and never of
fewer.
"""

from typing import cast

from tenure.app.plane import Plane

PAGE = 1_000
WHO = "tenure:census"
"""In whose name events far behind are read."""


class Census:
    """What one leader knows."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._token = 0
        self._position = 0
        self._total = 0

    async def total(self, plane: Plane, token: int) -> int:
        """How many events are kept, as the one knows who leads under this token.

        Under another token somebody else may have led, and dropped some: they are counted anew.
        """
        if self._token != token:
            position = await plane.feed.head()
            self._total = await plane.store.count_rows("outbox", {})
            self._token, self._position = token, position
        while rows := await plane.feed.more(self._position, limit=PAGE, tenant=WHO):
            self._position = cast(int, rows[-1]["position"])
            self._total += len(rows)
        return self._total

    def drop(self, count: int) -> None:
        """So many are gone."""
        self._total -= count

    def forget(self) -> None:
        """It is not followed any more."""
        self._token = 0
