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
        self._active_at: dict[ClaimKey, float] = {}
        """When each was last seen moving or followed; it is not followed again for a while."""
        self._wake_ups: dict[ClaimKey, WakeUp] = {}
        """Wake-ups of operations that did not move."""
        self._last_unclaimed: set[ClaimKey] = set()
        """Unclaimed operations of the last pass; most are claimed by the next pass."""
        self._last_claimed: set[ClaimKey] | None = None
        """Claimed operations of the last pass; None before the first pass."""

    async def run_pass(self) -> int:
        """Start or wake the runs of due operations; returns how many."""
        now = self._store.now()
        before = self._last_unclaimed
        unclaimed = [(name, token) for name, token, _ in await self._store.list_due("")]
        resting = [(name, token) for name, token, _ in await self._store.list_due(self._resting)]
        claimed = [(name, token) for name, token, _ in await self._store.list_due(self._worker)]
        self._last_unclaimed = set(unclaimed)
        self._active_at = {
            one: at for one, at in self._active_at.items() if now - at <= self._pause_seconds(one)
        }
        if (
            self._last_claimed is not None
        ):  # an operation that is new here counts as active until now
            self._active_at |= {
                one: now
                for one in claimed
                if one not in self._last_claimed | self._active_at.keys()
            }
        self._last_claimed = set(claimed)
        self._wake_ups = {
            one: woken for one, woken in self._wake_ups.items() if one in self._last_claimed
        }
        still_unclaimed = [one for one in unclaimed if one in before]
        waiting = [one for one in [*still_unclaimed, *resting] if one not in self._active_at]
        idle = await self._find_idle([one for one in claimed if one not in self._active_at], now)
        due = [*waiting, *idle]
        followed = 0
        for one in due[:AT_ONCE_MAX]:
            woken = idle.get(one)
            try:
                # A run that waits for a worker is not woken: that would only be more to do.
                await self._follow(one[0], woken is not None)
            except EngineError as error:
                log.warning("%s; %d operations wait for it", error, len(due) - followed)
                break
            self._active_at[one] = now
            if woken is not None:
                self._wake_ups[one] = woken
            followed += 1
        return followed

    def _pause_seconds(self, one: ClaimKey) -> float:
        """How long the operation is not followed again."""
        woken = self._wake_ups.get(one)
        return self._wake_policy.delay_seconds(woken.before if woken else 0)

    async def _find_idle(self, claimed: list[ClaimKey], now: float) -> dict[ClaimKey, WakeUp]:
        """The due operations for which nothing was recorded for a while."""
        found: dict[ClaimKey, WakeUp] = {}
        for one in claimed:
            if len(found) == AT_ONCE_MAX:
                break
            row = await self._store.find(OperationRecord, (one[0],))
            if row is None or row.ended_at is not None:
                continue
            since = max(float(str(row.updated_at)), float(str(row.due_at or 0.0)))
            if now - since > self._margin:
                revision, last = int(str(row.revision)), self._wake_ups.get(one)
                in_vain = last.before + 1 if last and last.revision == revision else 0
                found[one] = WakeUp(revision, in_vain)
            else:
                self._active_at[one] = since
        return found
