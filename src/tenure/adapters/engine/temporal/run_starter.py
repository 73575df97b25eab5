"""Keeps one sentence true: every open operation has a run.

Each pass reads the store, and needs no event.  It finds operations that no run has claimed, idle
operations whose retry is due, and due operations that were idle for longer than a margin.  So an
accepted operation starts even if Temporal was down when it was accepted, if the accepting process
died, if its run was terminated, or if Temporal has lost all its data.  Waking a live run is
harmless except that its history grows, so a run that stays idle is woken less and less often.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tenure.core.errors import EngineError
from tenure.core.records.operation import OperationRecord
from tenure.core.retry import TEMPORAL_WAKE
from tenure.ports.store import Store

log = logging.getLogger("tenure.engine")
STARTS_PER_PASS_MAX = 200
"""Runs started in one pass; the next pass continues with the rest."""
ClaimKey = tuple[str, int]
"""An operation id and the fence token of its claim; a new claim has a new key."""
StartOrWakeRun = Callable[[str, bool], Awaitable[None]]


class WakeUp(NamedTuple):
    """The operation's revision when its run was woken, and earlier wake-ups at that revision."""

    revision: int
    futile_count: int


class RunStarter:
    """Starts a run for each operation that has none."""

    def __init__(
        self,
        store: Store,
        start_or_wake: StartOrWakeRun,
        *,
        worker: str,
        idle_worker: str,
        margin_seconds: float,
    ) -> None:
        """`start_or_wake(operation, wake)` starts a missing run; with `wake` it wakes a live one.

        `worker` is the worker id of claimed operations, and `idle_worker` of those that wait.
        """
        self._store = store
        self._start_or_wake = start_or_wake
        self._worker = worker
        self._idle_worker = idle_worker
        self._margin = margin_seconds
        self._wake_policy = TEMPORAL_WAKE.scaled_to(margin_seconds)
        self._active_at: dict[ClaimKey, float] = {}
        """When each operation last moved, or its run was last started or woken."""
        self._wake_ups: dict[ClaimKey, WakeUp] = {}
        """Wake-ups of operations that have not moved since."""
        self._last_unclaimed: set[ClaimKey] = set()
        """Unclaimed operations of the last pass; most are claimed by the next pass."""
        self._last_claimed: set[ClaimKey] | None = None
        """Claimed operations of the last pass; None before the first pass."""

    async def run_pass(self) -> int:
        """Start or wake the runs of due operations; returns how many."""
        now = self._store.now()
        last_unclaimed = self._last_unclaimed
        unclaimed = [(name, token) for name, token, _ in await self._store.list_due("")]
        waiting = [
            (name, token) for name, token, _ in await self._store.list_due(self._idle_worker)
        ]
        claimed = [(name, token) for name, token, _ in await self._store.list_due(self._worker)]
        self._last_unclaimed = set(unclaimed)
        self._active_at = {
            key: at for key, at in self._active_at.items() if now - at <= self._pause_seconds(key)
        }
        if self._last_claimed is not None:  # a newly claimed operation counts as active now
            known = self._last_claimed | self._active_at.keys()
            self._active_at |= {key: now for key in claimed if key not in known}
        self._last_claimed = set(claimed)
        self._wake_ups = {
            key: wake_up for key, wake_up in self._wake_ups.items() if key in self._last_claimed
        }
        still_unclaimed = [key for key in unclaimed if key in last_unclaimed]
        without_run = [key for key in [*still_unclaimed, *waiting] if key not in self._active_at]
        idle = await self._find_idle([key for key in claimed if key not in self._active_at], now)
        return await self._start_all([*without_run, *idle], idle, now)

    async def _start_all(
        self, due: list[ClaimKey], idle: dict[ClaimKey, WakeUp], now: float
    ) -> int:
        """Start runs until the limit, or until Temporal refuses; returns how many."""
        started = 0
        for key in due[:STARTS_PER_PASS_MAX]:
            wake_up = idle.get(key)
            try:
                # A run that waits for a worker is not woken: that would only add work.
                await self._start_or_wake(key[0], wake_up is not None)
            except EngineError as error:
                log.warning("%s; %d operations wait for it", error, len(due) - started)
                break
            self._active_at[key] = now
            if wake_up is not None:
                self._wake_ups[key] = wake_up
            started += 1
        return started

    def _pause_seconds(self, key: ClaimKey) -> float:
        """How long the operation's run is neither started nor woken again."""
        wake_up = self._wake_ups.get(key)
        return self._wake_policy.delay_seconds(wake_up.futile_count if wake_up else 0)

    async def _find_idle(self, claimed: list[ClaimKey], now: float) -> dict[ClaimKey, WakeUp]:
        """The due operations for which nothing was recorded within the margin."""
        found: dict[ClaimKey, WakeUp] = {}
        for key in claimed:
            if len(found) == STARTS_PER_PASS_MAX:
                break
            row = await self._store.find(OperationRecord, (key[0],))
            if row is None or row.ended_at is not None:
                continue
            idle_since = max(float(str(row.updated_at)), float(str(row.due_at or 0.0)))
            if now - idle_since > self._margin:
                revision, last = int(str(row.revision)), self._wake_ups.get(key)
                is_futile = last is not None and last.revision == revision
                found[key] = WakeUp(revision, last.futile_count + 1 if last and is_futile else 0)
            else:
                self._active_at[key] = idle_since
        return found
