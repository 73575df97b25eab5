"""The last commits that the server acknowledged to this process, to notice a server that lost them.

A standby that replicates asynchronously and is promoted can lack commits which the old primary
acknowledged; so can a server that was restored while this process ran.  Every batch writes its id
to table `batch`.  The ids that were acknowledged last are compared with that table whenever a
connection is opened, and every few seconds on one that stays open.  A promoted standby has the
commits of the old primary up to some instant and none after it, so the last few ids are enough.
"""

from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import asyncpg

from tenure.core.errors import StoreRewound

RECENT_MAX = 200
"""Acknowledged batches that are remembered; there are never more connections that write."""
LISTED_MAX = 20
"""Lost changes that the error lists, the last ones."""
_MISSING = """
SELECT recent.id FROM unnest($1::text[], $2::double precision[]) AS recent (id, at)
WHERE NOT EXISTS (SELECT FROM batch WHERE batch.id = recent.id)
  AND EXISTS (SELECT FROM batch WHERE batch.at < recent.at)"""
"""Batches are deleted by age: one that is missing while an older one is there was not deleted."""


class AcknowledgedBatch(NamedTuple):
    """A batch whose commit the server has acknowledged."""

    id: str
    at: float
    """The time in its row of table `batch`."""
    changes: str
    """The ids of its changes, separated by spaces."""


class History:
    """The last acknowledged batches of one process; `check` raises if the server lacks one."""

    def __init__(self) -> None:
        self._recent: deque[AcknowledgedBatch] = deque(maxlen=RECENT_MAX)
        self._rewound = ""
        self.on_rewind: Callable[[StoreRewound], None] = lambda _: None
        """Called once, when a server that has gone backwards is noticed."""

    def acknowledge(self, batch: AcknowledgedBatch) -> None:
        """Remember a batch whose commit the server has acknowledged."""
        self._recent.append(batch)

    def refuse_rewound(self) -> None:
        """Raise StoreRewound if a check has failed before."""
        if self._rewound:
            raise StoreRewound(self._rewound)

    async def check(self, connection: asyncpg.Connection) -> None:
        """Raise StoreRewound if this server lacks a batch that was acknowledged."""
        self.refuse_rewound()
        lost = await self._find_lost(connection)
        if not lost:
            return
        error = StoreRewound(_describe(lost))
        if not self._rewound:
            self._rewound = str(error)
            self.on_rewind(error)
        raise error

    async def _find_lost(self, connection: asyncpg.Connection) -> Sequence[AcknowledgedBatch]:
        recent = list(self._recent)
        if not recent:
            return ()
        ids, times = [batch.id for batch in recent], [batch.at for batch in recent]
        try:
            missing = {row[0] for row in await connection.fetch(_MISSING, ids, times)}
        except asyncpg.UndefinedTableError:  # the server does not even have the tables
            return recent
        return [batch for batch in recent if batch.id in missing]


def _describe(lost: Sequence[AcknowledgedBatch]) -> str:
    first, last = (datetime.fromtimestamp(one.at, UTC) for one in (lost[0], lost[-1]))
    names = [name for one in lost for name in one.changes.split()]
    listed = ", ".join(names[-LISTED_MAX:]) or "none that has an id"
    more = f" and {len(names) - LISTED_MAX} before these" if len(names) > LISTED_MAX else ""
    return (
        f"The database server has gone backwards: it lacks {len(lost)} of the last commits that"
        f" were acknowledged to this process, of {first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S} UTC."
        " It was promoted from a standby that did not have them, or was restored."
        f" Acknowledged changes that are lost: {listed}{more}."
    )
