"""Three ways in which a reconciler is disturbed, tried on every one of them.

It is killed in the middle of a pass, at every crossing and on both sides; it is shown an old view,
of the providers' lists and of the store; what it has seen is over by its next pass, and nobody told
it.  However it was disturbed, the world must end as after passes that nobody disturbed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, cast

from proofs.events.deliver_all import deliver_all
from proofs.harness.cluster import Process
from proofs.harness.subject import Check, Checks
from proofs.reconcilers.scenarios import OVER, PROVE, SCENARIOS, DamagedStage, relay_of
from tenure.app.plane import Plane
from tenure.core.errors import CallerError, CommitUnknown
from tenure.core.records import LeaseRecord
from tenure.ports.store import R, Store
from tenure.reconcilers.driver import Driver, ReconcilePolicy
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.loop import EPOCH, Dead, SeededLoop, run
from tenure.testing.memory_store import MemoryStore, Tables
from tenure.testing.tripwire import CrossingSide

ROUND_SECONDS = 30.0
ROUNDS = 16
"""So many that the lease of a killed process is dropped, and that reported and settled."""
READS = frozenset({"find", "list_rows", "list_open", "list_living", "list_resources", "count_rows",
                   "list_events", "newest_event", "list_operations"})  # fmt: skip


class End(NamedTuple):
    """How a world ends: what is there of whom, how agents stand, what is still told or kept."""

    things: list[tuple[str, str]]
    states: list[str]
    told: list[tuple[str, str]]
    kept: list[str]
    """Rows that a reconciler answers for, and how much each agent's receiver has heard."""


def _end(stage: DamagedStage) -> End:
    names = {uid: str(row["name"]) for (uid,), row in stage.rows("agent").items()}
    things = sorted((t.provider, names[t.key.agent]) for t in stage.world.things.values())
    states = sorted(f"{row['name']} {row['state']}" for row in stage.rows("agent").values())
    rows = stage.rows("finding").values()
    told = sorted((r["reconciler"], r["kind"]) for r in rows if r["resolved_at"] is None)
    kept = [f"lease {name}" for (name,) in stage.rows("lease") if name == "worker/dead"]
    kept += [f"subscription {row['name']}" for row in stage.rows("subscription").values()]
    kept += [
        f"waits {row['acknowledged_at']}"
        for row in stage.rows("awaited").values()
        if row["acknowledged_at"] is None
    ]
    kept += [f"{table} of {agent}" for table in ("parked", "letter")
             for agent in sorted(names[key[1]] for key in stage.rows(table))]  # fmt: skip
    kept += _retained_too_long(stage)
    heard = {(names[event.agent], event.sequence) for event in stage.arrived}
    kept += [f"heard {name} {number}" for name, number in sorted(heard)]
    return End(things, states, told, kept)


def _retained_too_long(stage: DamagedStage) -> list[str]:
    """Rows that are over since before it began, and what is still said of operations."""
    old = [
        f"{table} {row.get('kind', '')} is over"
        for table in ("operation", "idempotency", "awaited", "finding")
        for row in stage.rows(table).values()
        if any((row.get(column) or EPOCH) < EPOCH for column in OVER)
    ]
    there = {name for (name,) in stage.rows("operation")}
    rows = [key for table in ("journal", "intent") for key in stage.rows(table)]
    return sorted(old) + [f"rows of {name}" for name in sorted({key[0] for key in rows} - there)]


class OldView:
    """A store that is asked what was, and told what is; only its leases are as they are."""

    def __init__(self, now: Store, then: Store) -> None:
        self._now = now
        self._then = then

    async def find(self, record: type[R], key: Any) -> R | None:
        """As it was."""
        return await (self._now if record is LeaseRecord else self._then).find(record, key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._then if name in READS else self._now, name)


class PassRunner:
    """Runs passes in one process: of the reconcilers, or of the relay."""

    def __init__(self, stage: DamagedStage, process: Process, scenario: str) -> None:
        self._stage, self._process, self._relays = stage, process, scenario == "news"
        self._pass = self._of(process.plane)

    def _of(self, plane: Plane) -> Callable[[], Awaitable[object]]:
        if not self._relays:
            driver = Driver(plane, clock=self._stage.clock, policy=ReconcilePolicy())
            return lambda: driver.run_now("", False)  # noqa: FBT003 (as the face asks)
        relay = relay_of(self._stage, plane, self._process)

        async def carry() -> None:
            await relay.create_cursors()
            await deliver_all(relay)

        return carry

    async def run(self, *, then: Tables | None = None) -> None:
        """Run one pass; on the tables as they were `then`, if they are given."""
        run_pass = self._pass
        if then is not None:
            before = MemoryStore(then, clock=self._stage.clock)
            view = cast(Store, OldView(self._process.plane.store, before))
            run_pass = self._of(replace(self._process.plane, store=view))
        with suppress(Dead, CommitUnknown, CallerError):
            await self._process.ask(lambda _: run_pass())


class Disturbance(NamedTuple):
    """How the first pass is disturbed."""

    crash_at: int = 0
    side: CrossingSide = CrossingSide.BEFORE
    stale: bool = False
    """Providers list what was, and the store says what was."""
    cured: bool = False
    """What is wrong comes right by itself."""
    unseen: bool = False
    """That happens before the first pass."""


CALM = Disturbance()


async def end_after(
    loop: SeededLoop, scenario: str, disturbance: Disturbance = CALM
) -> tuple[End, int]:
    """The end after this was put right; how often the first pass crosses."""
    stage = DamagedStage(loop)
    process = await stage.begin()
    await stage.make("alpha")
    disk: Any = stage.disk
    then = Tables.read(disk.tables.dump()) if disturbance.stale else None
    await SCENARIOS[scenario].damage(stage)
    if disturbance.stale:
        for slot in stage.fakes.all():
            stage.faults.script[FaultPoint(slot, "list_owned", 1)] = Fault.STALE_PAGE
            stage.faults.script[FaultPoint(slot, "list_owned", 2)] = Fault.UNLISTED
    if disturbance.unseen:
        await SCENARIOS[scenario].repair(stage)
    before = len(process.wire.crossings)
    process.wire.side = disturbance.side
    process.wire.crash_at = before + disturbance.crash_at if disturbance.crash_at else 0
    crossed = 0
    runner = PassRunner(stage, process, scenario)
    for number in range(ROUNDS):
        await runner.run(then=then if number == 0 else None)
        if not number:
            crossed = len(process.wire.crossings) - before
            if disturbance.cured and not disturbance.unseen:
                await SCENARIOS[scenario].repair(stage)
        if process.node.dead:
            process.crash()
            process = await stage.begin(f"plane {number}")
            runner = PassRunner(stage, process, scenario)
        await asyncio.sleep(ROUND_SECONDS)
    return _end(stage), crossed


def ends(scenario: str, disturbance: Disturbance = CALM) -> tuple[End, int]:
    """The same, in a loop of its own."""
    return run(0, lambda loop: end_after(loop, scenario, disturbance))


def disturbance_checks(stride: int = 1) -> Checks:
    """Every reconciler disturbed in every way; the end must be that of one nobody disturbed."""
    for scenario in SCENARIOS:
        expected, crossings = ends(scenario)
        yield from _compare_ends(scenario, Disturbance(stale=True), expected)
        unseen, _ = ends(scenario, Disturbance(cured=True, unseen=True))
        yield from _compare_ends(scenario, Disturbance(cured=True), unseen)
        for number in range(1, crossings + 1, stride):
            for side in (CrossingSide.BEFORE, CrossingSide.AFTER):
                yield from _compare_ends(scenario, Disturbance(number, side), expected)


def _compare_ends(scenario: str, disturbance: Disturbance, expected: End) -> Checks:
    found, _ = ends(scenario, disturbance)
    wrong = [] if found == expected else [f"it ended as {found}, undisturbed as {expected}"]
    yield Check(f"{PROVE} 3 (ends({scenario!r}, {disturbance!r}))", wrong)
