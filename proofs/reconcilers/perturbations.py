"""Three ways in which a reconciler is led astray, tried on every one of them.

It is killed in the middle of a look, at every crossing and on both sides; it is shown an old view,
of the providers' lists and of the store; what it has seen is over by the time it looks again, and
nobody told it.  However it was disturbed, the world must end as after looks that nobody disturbed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, cast

from proofs.agents.lifecycle import CALLER
from proofs.harness.rig import Process
from proofs.reconcilers.promises import PROVE, Cases, Stage
from tenure.adapters.bus.local import LocalBus
from tenure.app.agents import commands as agents
from tenure.app.agents.commands import Asked
from tenure.app.events import acknowledgements, dead_letters, subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.core.agent import AgentState
from tenure.core.errors import CallerError, CommitUnknown
from tenure.core.finding import FindingKind as Sure
from tenure.core.operation import OperationState
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import Relay
from tenure.ports.bus import Destination, Outgoing
from tenure.ports.store import Row, Store
from tenure.reconcilers import retention
from tenure.reconcilers.driver import Driver, Ways
from tenure.reconcilers.leader import PREFIX
from tenure.testing.faults import Call, Fault
from tenure.testing.loop import EPOCH, Dead, SeededLoop, run
from tenure.testing.memory_store import MemoryStore, Tables
from tenure.testing.operators import by
from tenure.testing.tripwire import Side

ROUND_SECONDS = 30.0
ROUNDS = 16
"""So many that the lease of one that was killed is dropped, and that told and settled."""
SINK = "sink"
READS = frozenset({"find", "list_rows", "list_open", "list_living", "list_resources", "count_rows",
                   "list_events", "newest_event", "count_events", "list_operations"})  # fmt: skip
Doing = Callable[["Struck"], Awaitable[None]]


class Struck(Stage):
    """A world in which one thing is not as it should be."""

    arrived: list[Outgoing]
    """What a receiver of events has been sent."""

    async def begin(self, name: str = "plane") -> Process:
        """Start a plane; whatever was sent before stays sent."""
        self.arrived = getattr(self, "arrived", [])
        return await super().begin(name)

    async def until(self, operation: str, state: OperationState) -> None:
        """Return when the operation stands so."""
        while (await reads.get_operation(self.plane, CALLER.tenant, operation)).state != state:  # noqa: ASYNC110 (virtual)
            await asyncio.sleep(1.0)


# --- what is wrong, and how it can come right by itself -------------------------------------------


async def _late(stage: Struck) -> None:
    (uid,) = await stage.make("gone")
    (thing,) = stage.world.holds(provider="runtime", agent=uid)
    await stage.verb("delete", "gone")
    stage.world.things["runtime", thing.key.text] = thing


async def _orphan(stage: Struck) -> None:
    await stage.leave("gone")


async def _vanish(stage: Struck) -> None:
    """What was left of the one that is gone goes by itself."""
    names = {uid: row["name"] for (uid,), row in stage.rows("agent").items()}
    for at, thing in list(stage.world.things.items()):
        if names[thing.key.agent] == "gone":
            del stage.world.things[at]


async def _dead(stage: Struck) -> None:
    (thing,) = stage.world.holds(provider="runtime")
    stage.fakes.runtime.stopped.add(thing.key.text)


async def _renew(stage: Struck) -> None:
    """Somebody gives the agent another runtime in the usual way."""
    await stage.verb("suspend", "alpha")
    await stage.verb("resume", "alpha")


async def _client_gone(stage: Struck) -> None:
    (thing,) = stage.world.holds(provider="identity")
    del stage.world.things["identity", thing.key.text]


async def _delete(stage: Struck) -> None:
    await stage.verb("delete", "alpha")


async def _bereft(stage: Struck) -> None:
    (uid,) = await stage.make("parent")
    await stage.make("child", parent="parent")
    kept = {key: dict(row) for key, row in stage.rows("edge").items()}
    stage.rows("edge").clear()
    await stage.verb("delete", "parent")
    stage.rows("edge").update({key: row for key, row in kept.items() if key[1] == "agent"})
    assert stage.rows("agent")[uid,]["state"] == AgentState.DELETED


async def _delete_child(stage: Struck) -> None:
    with suppress(CallerError):  # it may be on its way already
        await stage.verb("delete", "child")


async def _webhook(stage: Struck) -> None:
    """The reaction to the end of the agent that it is about never came."""
    await stage.make("gone")
    asked = SubscriptionRequest("mine", SubscriptionKind.PULL, agent="gone")
    await subscriptions.create_subscription(stage.plane, CALLER, asked)
    await stage.verb("delete", "gone")


async def _unsubscribe(stage: Struck) -> None:
    for row in await subscriptions.rows_of(stage.plane):
        await subscriptions.remove(stage.plane, CALLER, row)


async def _stuck(stage: Struck) -> None:
    stage.faults.script[Call("access", "remove", 1)] = Fault.REFUSED
    await stage.verb("delete", "alpha")


async def _help(stage: Struck) -> None:
    """The provider gives in, and a person has it tried again."""
    stage.fakes.access._refuses.clear()  # noqa: SLF001
    (row,) = await stage.plane.store.list_open(states=[OperationState.STUCK])
    name = str(row["id"])
    await operations.retry(stage.plane, by("somebody"), name)
    await stage.until(name, OperationState.SUCCEEDED)


async def _lapsed(stage: Struck) -> None:
    row: Row = {"name": "worker/dead", "holder": "dead", "token": 1, "until": 0.0}
    stage.rows("lease")["worker/dead",] = row


async def _come_back(stage: Struck) -> None:
    """The holder was only asleep."""
    row = stage.rows("lease").get(("worker/dead",))
    if row is not None:
        row["until"] = stage.plane.store.now() + 1e6
    else:  # it takes its lease anew
        await _lapsed(stage)
        stage.rows("lease")["worker/dead",]["until"] = stage.plane.store.now() + 1e6


async def _unheard(stage: Struck) -> None:
    """A plane died after it had dropped a subscription and before it told who waits for it."""
    asked = SubscriptionRequest("required", SubscriptionKind.PULL, required=True)
    await subscriptions.create_subscription(stage.plane, CALLER, asked)
    operation = await agents.suspend_agent(stage.plane, CALLER, "alpha")
    await stage.until(operation.id, OperationState.WAITING)
    stage.rows("subscription").clear()


async def _override(stage: Struck) -> None:
    for operation, subscription in list(stage.rows("awaited")):
        await acknowledgements.acknowledge(
            stage.plane, CALLER, subscription, operation=operation, why="it is gone"
        )


async def _park(stage: Struck) -> str:
    """One agent's stream is parked, and waits for a person; the destination."""
    asked = SubscriptionRequest("hearing", SubscriptionKind.NATS, target="hearing")
    view, _ = await subscriptions.create_subscription(stage.plane, CALLER, asked)
    uid = stage.rows("agent_name")["default", "alpha"]["agent"]
    (told, *_) = stage.rows("outbox").values()
    stage.rows("parked")[view.id, uid] = {
        "destination": view.id, "agent": uid, "attempts": 20, "due_at": None, "why": "no",
        "since": stage.plane.store.now(),
    }  # fmt: skip
    key = {"destination": view.id, "agent": uid, "position": told["position"]}
    stage.rows("letter")[*key.values()] = {**key, **told}
    return view.id


async def _parked(stage: Struck) -> None:
    await _park(stage)


async def _discard(stage: Struck) -> None:
    for destination, uid in list(stage.rows("parked")):
        await dead_letters.discard(stage.plane, CALLER, destination, agent=uid)


async def _unswept(stage: Struck) -> None:
    """A plane died after it had dropped a subscription and before what was parked for it."""
    destination = await _park(stage)
    stage.rows("subscription").clear()
    del stage.rows("cursor")[destination,]


async def _sweep(stage: Struck) -> None:
    for destination in {destination for destination, _ in stage.rows("parked")}:
        await subscriptions.drop_letters(stage.plane, destination)


OVER = ("at", "created_at", "updated_at", "ended_at", "acknowledged_at", "resolved_at")
OVER_SECONDS = 100 * 86_400.0


async def _over(stage: Struck) -> None:
    """What is over is so for a hundred days, and nobody has seen to it."""
    await stage.make("gone")
    await stage.verb("delete", "gone")
    required = SubscriptionRequest("required", SubscriptionKind.PULL, required=True)
    view, _ = await subscriptions.create_subscription(stage.plane, CALLER, required)
    asked = Asked(idempotency_key="once")
    suspended = await agents.suspend_agent(stage.plane, CALLER, "alpha", asked=asked)
    await acknowledgements.acknowledge(stage.plane, CALLER, view.id, operation=suspended.id)
    await stage.plane.engine.wait(suspended.id, 60.0)
    seen = findings.Sighting("leases", Sure.CONFIRMED, "x", "default", "", "", {"what": "x"})
    row = cast(Row, await findings.report(stage.plane, seen))
    await findings.settle(stage.plane, row, by="somebody")
    for table in ("operation", "idempotency", "awaited", "finding"):
        for row in stage.rows(table).values():
            for column in OVER:
                if row.get(column) is not None:
                    row[column] -= OVER_SECONDS


async def _forget(stage: Struck) -> None:
    """A reconciler elsewhere has seen to it, or to as much of it as is to go yet."""
    await retention.tick(stage.plane)


async def _news(stage: Struck) -> None:
    await stage.make("beta")
    await stage.verb("suspend", "alpha")


async def _carried(stage: Struck) -> None:
    """A relay elsewhere has carried everything."""
    stage.rows("lease").pop((f"{PREFIX}relay",), None)
    relay = _relay(stage, stage.plane, None)
    await relay.begin()
    await relay.tick()
    await relay.leader.resign()


class Hurt(NamedTuple):
    """What is wrong, which reconciler puts it right, and how it can come right without it."""

    reconciler: str
    inflict: Doing
    cure: Doing


HURTS: Mapping[str, Hurt] = {
    "late": Hurt("late", _late, _vanish),
    "orphan": Hurt("orphans", _orphan, _vanish),
    "runtime": Hurt("drift", _dead, _renew),
    "client": Hurt("drift", _client_gone, _delete),
    "bereft": Hurt("grants", _bereft, _delete_child),
    "webhook": Hurt("grants", _webhook, _unsubscribe),
    "stuck": Hurt("operations", _stuck, _help),
    "lease": Hurt("leases", _lapsed, _come_back),
    "unheard": Hurt("acknowledgements", _unheard, _override),
    "parked": Hurt("letters", _parked, _discard),
    "unswept": Hurt("letters", _unswept, _sweep),
    "over": Hurt("retention", _over, _forget),
    "news": Hurt("outbox", _news, _carried),
}
"""At least one for every reconciler."""


# --- how it ends ----------------------------------------------------------------------------------


class End(NamedTuple):
    """How a world ends: what is there of whom, how agents stand, what is still told or kept."""

    things: list[tuple[str, str]]
    states: list[str]
    told: list[tuple[str, str]]
    kept: list[str]
    """Rows that a reconciler answers for, and how much each agent's receiver has heard."""


def _end(stage: Struck) -> End:
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
    kept += _kept_too_long(stage)
    heard = {(names[event.agent], event.sequence) for event in stage.arrived}
    kept += [f"heard {name} {number}" for name, number in sorted(heard)]
    return End(things, states, told, kept)


def _kept_too_long(stage: Struck) -> list[str]:
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

    async def find(self, table: str, key: Any) -> Row | None:
        """As it was."""
        return await (self._now if table == "lease" else self._then).find(table, key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._then if name in READS else self._now, name)


def _relay(stage: Struck, plane: Plane, process: Process | None) -> Relay:
    async def take(event: Outgoing) -> None:
        async def arrive() -> None:
            stage.arrived.append(event)

        await (arrive() if process is None else process.wire.cross("bus.publish", arrive))

    route = DestinationRoute(Destination(SINK, SINK), LocalBus({SINK: take}))
    return Relay(plane, buses={}, always=[route])


class Eyes:
    """Whoever looks in one process: the reconcilers, or the relay."""

    def __init__(self, stage: Struck, process: Process, hurt: str) -> None:
        self._stage, self._process, self._relays = stage, process, hurt == "news"
        self._look = self._of(process.plane)

    def _of(self, plane: Plane) -> Callable[[], Awaitable[object]]:
        if not self._relays:
            driver = Driver(plane, clock=self._stage.clock, ways=Ways())
            return lambda: driver.look("", False)  # noqa: FBT003 (as the face asks)
        relay = _relay(self._stage, plane, self._process)

        async def carry() -> None:
            await relay.begin()
            await relay.tick()

        return carry

    async def look(self, *, then: Tables | None = None) -> None:
        """Look once; at the tables as they were `then`, if they are given."""
        look = self._look
        if then is not None:
            before = MemoryStore(then, clock=self._stage.clock)
            view = cast(Store, OldView(self._process.plane.store, before))
            look = self._of(replace(self._process.plane, store=view))
        with suppress(Dead, CommitUnknown, CallerError):
            await self._process.ask(lambda _: look())


class Disturbance(NamedTuple):
    """How the first look is disturbed."""

    crash_at: int = 0
    side: Side = Side.BEFORE
    stale: bool = False
    """Providers list what was, and the store says what was."""
    cured: bool = False
    """What is wrong comes right by itself."""
    unseen: bool = False
    """That happens before anybody has looked."""


CALM = Disturbance()


async def end_after(loop: SeededLoop, hurt: str, disturbed: Disturbance = CALM) -> tuple[End, int]:
    """The end after this was put right; how often the first look crosses."""
    stage = Struck(loop)
    process = await stage.begin()
    await stage.make("alpha")
    disk: Any = stage.disk
    then = Tables.read(disk.tables.dump()) if disturbed.stale else None
    await HURTS[hurt].inflict(stage)
    if disturbed.stale:
        for slot in stage.fakes.all():
            stage.faults.script[Call(slot, "list_owned", 1)] = Fault.STALE_PAGE
            stage.faults.script[Call(slot, "list_owned", 2)] = Fault.UNLISTED
    if disturbed.unseen:
        await HURTS[hurt].cure(stage)
    before = len(process.wire.crossings)
    process.wire.side = disturbed.side
    process.wire.crash_at = before + disturbed.crash_at if disturbed.crash_at else 0
    crossed = 0
    eyes = Eyes(stage, process, hurt)
    for number in range(ROUNDS):
        await eyes.look(then=then if number == 0 else None)
        if not number:
            crossed = len(process.wire.crossings) - before
            if disturbed.cured and not disturbed.unseen:
                await HURTS[hurt].cure(stage)
        if process.node.dead:
            process.crash()
            process = await stage.begin(f"plane {number}")
            eyes = Eyes(stage, process, hurt)
        await asyncio.sleep(ROUND_SECONDS)
    return _end(stage), crossed


def ends(hurt: str, disturbed: Disturbance = CALM) -> tuple[End, int]:
    """The same, in a loop of its own."""
    return run(0, lambda loop: end_after(loop, hurt, disturbed))


def disturbed(stride: int = 1) -> Cases:
    """Every reconciler disturbed in every way; the end must be that of one nobody disturbed."""
    for hurt in HURTS:
        wanted, crossings = ends(hurt)
        yield from _compared(hurt, Disturbance(stale=True), wanted)
        unseen, _ = ends(hurt, Disturbance(cured=True, unseen=True))
        yield from _compared(hurt, Disturbance(cured=True), unseen)
        for number in range(1, crossings + 1, stride):
            for side in (Side.BEFORE, Side.AFTER):
                yield from _compared(hurt, Disturbance(number, side), wanted)


def _compared(hurt: str, disturbed: Disturbance, wanted: End) -> Iterator[tuple[str, list[str]]]:
    found, _ = ends(hurt, disturbed)
    wrong = [] if found == wanted else [f"it ended as {found}, undisturbed as {wanted}"]
    yield f"{PROVE} 3 (ends({hurt!r}, {disturbed!r}))", wrong
