"""Keeps one sentence true: every open operation has a run that follows it.

It looks at levels, never at events: operations that nobody has claimed, those at rest whose retry
is due, and those that are due and have stood still for longer than a margin.  So an accepted
operation starts also if Temporal was down when it was accepted, if whoever accepted it died, if its
run was terminated, and if Temporal has lost all its data.  To wake a run that lives does no harm
but that its history grows; so one that stands still all the same is woken ever more seldom.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tenure.core.errors import EngineError
from tenure.core.records import OperationRecord
from tenure.core.retry import TEMPORAL_WAKE
from tenure.ports.store import Store

log = logging.getLogger("tenure.engine")
AT_ONCE_MAX = 200
"""Runs started in one look; the next look goes on with the rest."""
ClaimKey = tuple[str, int]
"""An operation and the token under which it is held: a new claim is a new case."""
StartRun = Callable[[str, bool], Awaitable[None]]


class WakeUp(NamedTuple):
    """At which revision one was woken, and how often before in vain."""

    revision: int
    before: int


class RunStarter:
    """Looks for operations that no run follows."""

    def __init__(
        self,
        store: Store,
        follow: StartRun,
        *,
        worker: str,
        resting: str,
        margin_seconds: float,
    ) -> None:
        """`follow` starts a run for an operation that has none; it wakes the one it has if told."""
        self._store = store
        self._follow = follow
        self._worker = worker
        self._resting = resting
        self._margin = margin_seconds
        self._wake_policy = TEMPORAL_WAKE.scaled_to(margin_seconds)
        self._seen: dict[ClaimKey, float] = {}
        """When each was seen moving, or followed last; it is left alone for a while from then."""
        self._woken: dict[ClaimKey, WakeUp] = {}
        """Those that stood still."""
        self._unclaimed: set[ClaimKey] = set()
        """Seen at the last look; most are claimed by the next."""
        self._held: set[ClaimKey] | None = None
        """Seen at the last look; None: there was none, and nobody knows since when they stand."""

    async def look(self) -> int:
        """How many operations were followed."""
        now = self._store.now()
        before = self._unclaimed
        unclaimed = [(name, token) for name, token, _ in await self._store.list_due("")]
        resting = [(name, token) for name, token, _ in await self._store.list_due(self._resting)]
        held = [(name, token) for name, token, _ in await self._store.list_due(self._worker)]
        self._unclaimed = set(unclaimed)
        self._seen = {one: at for one, at in self._seen.items() if now - at <= self._while(one)}
        if self._held is not None:  # what is new has begun to stand still just now, if it does
            self._seen |= {one: now for one in held if one not in self._held | self._seen.keys()}
        self._held = set(held)
        self._woken = {one: woken for one, woken in self._woken.items() if one in self._held}
        left = [one for one in unclaimed if one in before]
        waiting = [one for one in [*left, *resting] if one not in self._seen]
        standing = await self._standing([one for one in held if one not in self._seen], now)
        due = [*waiting, *standing]
        followed = 0
        for one in due[:AT_ONCE_MAX]:
            woken = standing.get(one)
            try:
                # A run that waits for a worker is not woken: that would only be more to do.
                await self._follow(one[0], woken is not None)
            except EngineError as error:
                log.warning("%s; %d operations wait for it", error, len(due) - followed)
                break
            self._seen[one] = now
            if woken is not None:
                self._woken[one] = woken
            followed += 1
        return followed

    def _while(self, one: ClaimKey) -> float:
        """For how long it is left alone."""
        woken = self._woken.get(one)
        return self._wake_policy.delay_seconds(woken.before if woken else 0)

    async def _standing(self, held: list[ClaimKey], now: float) -> dict[ClaimKey, WakeUp]:
        """Of those that are due, the ones for which nothing was recorded for a while."""
        found: dict[ClaimKey, WakeUp] = {}
        for one in held:
            if len(found) == AT_ONCE_MAX:
                break
            row = await self._store.find(OperationRecord, (one[0],))
            if row is None or row.ended_at is not None:
                continue
            since = max(float(str(row.updated_at)), float(str(row.due_at or 0.0)))
            if now - since > self._margin:
                revision, last = int(str(row.revision)), self._woken.get(one)
                in_vain = last.before + 1 if last and last.revision == revision else 0
                found[one] = WakeUp(revision, in_vain)
            else:
                self._seen[one] = since
        return found
