"""One world in which one thing is not as it should be, and which reconciler repairs it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from proofs.agents.lifecycle import CALLER, AgentCluster, spec_of
from proofs.events.deliver_all import deliver_all
from proofs.harness.cluster import Process
from tenure.adapters.bus.local import LocalBus
from tenure.app.agents import commands as agents
from tenure.app.agents.commands import RequestOptions
from tenure.app.events import acknowledgements, dead_letters, subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.leader import PREFIX
from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.core.agent import AgentState
from tenure.core.errors import CallerError
from tenure.core.finding import FindingKind as Sure
from tenure.core.operation import OperationState
from tenure.core.records import FindingRecord
from tenure.core.subscription import SubscriptionKind
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import Relay
from tenure.ports.bus import Destination, Outgoing
from tenure.ports.store import Row
from tenure.reconcilers import orphans, retention
from tenure.testing.fakes import Thing
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.loop import EPOCH
from tenure.testing.operators import by

LONG = orphans.GRACE_SECONDS + 1
PROVE = "python -m proofs.prove"
SINK = "sink"


class Stage(AgentCluster):
    """One world with one plane that is asked from inside."""

    plane: Plane

    async def begin(self, name: str = "plane") -> Process:
        """Start a plane."""
        process = self.boot(name)
        await process.start()
        self.plane = process.plane
        return process

    async def make(self, *names: str, **kwargs: object) -> list[str]:
        """Agents that are READY; their uids."""
        made = [
            await agents.create_agent(self.plane, CALLER, spec_of(name, **kwargs)) for name in names
        ]
        for one in made:
            await self.plane.engine.wait(one.id, 60.0)
        return [one.agent for one in made]

    async def verb(self, verb: str, name: str) -> None:
        """Ask for a verb and wait for its end."""
        ask = getattr(agents, f"{verb}_agent")
        await self.plane.engine.wait((await ask(self.plane, CALLER, name)).id, 60.0)

    async def leave(self, name: str) -> Thing:
        """A runtime that is there again after its agent was deleted and nobody watches it."""
        (uid,) = await self.make(name)
        (thing,) = self.world.holds(provider="runtime", agent=uid)
        await self.verb("delete", name)
        self.rows("tombstone").clear()
        thing.since = EPOCH
        self.world.things["runtime", thing.key.text] = thing
        return thing

    def rows(self, table: str) -> dict[Any, Any]:
        """The rows of a table, as a hand can reach them."""
        disk: Any = self.disk
        rows: dict[Any, Any] = disk.tables.rows[table]
        return rows

    async def run_passes(self, times: int = 4, seconds: float = LONG, **kwargs: Any) -> None:
        """Let orphans be looked for, again and again."""
        for _ in range(times):
            await orphans.tick(self.plane, **kwargs)
            await asyncio.sleep(seconds)

    async def finding_texts(self) -> list[str]:
        """What is open, in words."""
        found = await findings.list_findings(self.plane, CALLER)
        return [str(one.body["what"]) for one in found]


ChangeStage = Callable[["DamagedStage"], Awaitable[None]]


class DamagedStage(Stage):
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


async def _late(stage: DamagedStage) -> None:
    (uid,) = await stage.make("gone")
    (thing,) = stage.world.holds(provider="runtime", agent=uid)
    await stage.verb("delete", "gone")
    stage.world.things["runtime", thing.key.text] = thing


async def _orphan(stage: DamagedStage) -> None:
    await stage.leave("gone")


async def _vanish(stage: DamagedStage) -> None:
    """What was left of the one that is gone goes by itself."""
    names = {uid: row["name"] for (uid,), row in stage.rows("agent").items()}
    for at, thing in list(stage.world.things.items()):
        if names[thing.key.agent] == "gone":
            del stage.world.things[at]


async def _dead(stage: DamagedStage) -> None:
    (thing,) = stage.world.holds(provider="runtime")
    stage.fakes.runtime.stopped.add(thing.key.text)


async def _renew(stage: DamagedStage) -> None:
    """Somebody gives the agent another runtime in the usual way."""
    await stage.verb("suspend", "alpha")
    await stage.verb("resume", "alpha")


async def _client_gone(stage: DamagedStage) -> None:
    (thing,) = stage.world.holds(provider="identity")
    del stage.world.things["identity", thing.key.text]


async def _delete(stage: DamagedStage) -> None:
    await stage.verb("delete", "alpha")


async def _bereft(stage: DamagedStage) -> None:
    (uid,) = await stage.make("parent")
    await stage.make("child", parent="parent")
    kept = {key: dict(row) for key, row in stage.rows("edge").items()}
    stage.rows("edge").clear()
    await stage.verb("delete", "parent")
    stage.rows("edge").update({key: row for key, row in kept.items() if key[1] == "agent"})
    assert stage.rows("agent")[uid,]["state"] == AgentState.DELETED


async def _delete_child(stage: DamagedStage) -> None:
    with suppress(CallerError):  # it may be on its way already
        await stage.verb("delete", "child")


async def _webhook(stage: DamagedStage) -> None:
    """The reaction to the end of the agent that it is about never came."""
    await stage.make("gone")
    asked = SubscriptionRequest("mine", SubscriptionKind.PULL, agent="gone")
    await subscriptions.create_subscription(stage.plane, CALLER, asked)
    await stage.verb("delete", "gone")


async def _unsubscribe(stage: DamagedStage) -> None:
    for row in await subscriptions.rows_of(stage.plane):
        await subscriptions.remove(stage.plane, CALLER, row)


async def _stuck(stage: DamagedStage) -> None:
    stage.faults.script[FaultPoint("access", "remove", 1)] = Fault.REFUSED
    await stage.verb("delete", "alpha")


async def _help(stage: DamagedStage) -> None:
    """The provider gives in, and a person has it tried again."""
    stage.fakes.access._refuses.clear()  # noqa: SLF001
    (row,) = await stage.plane.store.list_open(states=[OperationState.STUCK])
    name = row.id
    await operations.retry(stage.plane, by("somebody"), name)
    await stage.until(name, OperationState.SUCCEEDED)


async def _lapse_lease(stage: DamagedStage) -> None:
    row: Row = {"name": "worker/dead", "holder": "dead", "token": 1, "until": 0.0}
    stage.rows("lease")["worker/dead",] = row


async def _come_back(stage: DamagedStage) -> None:
    """The holder was only asleep."""
    row = stage.rows("lease").get(("worker/dead",))
    if row is not None:
        row["until"] = stage.plane.store.now() + 1e6
    else:  # it takes its lease anew
        await _lapse_lease(stage)
        stage.rows("lease")["worker/dead",]["until"] = stage.plane.store.now() + 1e6


async def _unheard(stage: DamagedStage) -> None:
    """A plane died after it had dropped a subscription and before it told who waits for it."""
    asked = SubscriptionRequest("required", SubscriptionKind.PULL, required=True)
    await subscriptions.create_subscription(stage.plane, CALLER, asked)
    operation = await agents.suspend_agent(stage.plane, CALLER, "alpha")
    await stage.until(operation.id, OperationState.WAITING)
    stage.rows("subscription").clear()


async def _override(stage: DamagedStage) -> None:
    for operation, subscription in list(stage.rows("awaited")):
        await acknowledgements.acknowledge(
            stage.plane, CALLER, subscription, operation=operation, why="it is gone"
        )


async def _add_waiting(stage: DamagedStage) -> str:
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


async def _park_event(stage: DamagedStage) -> None:
    await _add_waiting(stage)


async def _discard(stage: DamagedStage) -> None:
    for destination, uid in list(stage.rows("parked")):
        await dead_letters.discard(stage.plane, CALLER, destination, agent=uid)


async def _unswept(stage: DamagedStage) -> None:
    """A plane died after it had dropped a subscription and before what was parked for it."""
    destination = await _add_waiting(stage)
    stage.rows("subscription").clear()
    del stage.rows("cursor")[destination,]


async def _sweep(stage: DamagedStage) -> None:
    for destination in {destination for destination, _ in stage.rows("parked")}:
        await subscriptions.drop_letters(stage.plane, destination)


OVER = ("at", "created_at", "updated_at", "ended_at", "acknowledged_at", "resolved_at")
OVER_SECONDS = 100 * 86_400.0


async def _over(stage: DamagedStage) -> None:
    """What is over is so for a hundred days, and nobody has seen to it."""
    await stage.make("gone")
    await stage.verb("delete", "gone")
    required = SubscriptionRequest("required", SubscriptionKind.PULL, required=True)
    view, _ = await subscriptions.create_subscription(stage.plane, CALLER, required)
    asked = RequestOptions(idempotency_key="once")
    suspended = await agents.suspend_agent(stage.plane, CALLER, "alpha", request_options=asked)
    await acknowledgements.acknowledge(stage.plane, CALLER, view.id, operation=suspended.id)
    await stage.plane.engine.wait(suspended.id, 60.0)
    seen = findings.Sighting("leases", Sure.CONFIRMED, "x", "default", "", "", {"what": "x"})
    finding = cast(FindingRecord, await findings.report(stage.plane, seen))
    await findings.resolve(stage.plane, finding, by="somebody")
    for table in ("operation", "idempotency", "awaited", "finding"):
        for row in stage.rows(table).values():
            for column in OVER:
                if row.get(column) is not None:
                    row[column] -= OVER_SECONDS


async def _forget(stage: DamagedStage) -> None:
    """A reconciler elsewhere has seen to it, or to as much of it as is to go yet."""
    await retention.tick(stage.plane)


async def _news(stage: DamagedStage) -> None:
    await stage.make("beta")
    await stage.verb("suspend", "alpha")


async def _relay_once(stage: DamagedStage) -> None:
    """A relay elsewhere has carried everything."""
    stage.rows("lease").pop((f"{PREFIX}relay",), None)
    relay = relay_of(stage, stage.plane, None)
    await relay.create_cursors()
    await deliver_all(relay)
    await relay.leader.resign()


class RepairScenario(NamedTuple):
    """What is damaged, which reconciler repairs it, and how it is repaired without it."""

    reconciler: str
    damage: ChangeStage
    repair: ChangeStage


SCENARIOS: Mapping[str, RepairScenario] = {
    "late": RepairScenario("late", _late, _vanish),
    "orphan": RepairScenario("orphans", _orphan, _vanish),
    "runtime": RepairScenario("drift", _dead, _renew),
    "client": RepairScenario("drift", _client_gone, _delete),
    "bereft": RepairScenario("grants", _bereft, _delete_child),
    "webhook": RepairScenario("grants", _webhook, _unsubscribe),
    "stuck": RepairScenario("operations", _stuck, _help),
    "lease": RepairScenario("leases", _lapse_lease, _come_back),
    "unheard": RepairScenario("acknowledgements", _unheard, _override),
    "parked": RepairScenario("letters", _park_event, _discard),
    "unswept": RepairScenario("letters", _unswept, _sweep),
    "over": RepairScenario("retention", _over, _forget),
    "news": RepairScenario("outbox", _news, _relay_once),
}
"""At least one for every reconciler."""


def relay_of(stage: DamagedStage, plane: Plane, process: Process | None) -> Relay:
    """A relay that delivers to the receiver of the stage, over the wire of its process."""

    async def take(event: Outgoing) -> None:
        async def arrive() -> None:
            stage.arrived.append(event)

        await (arrive() if process is None else process.wire.cross("bus.publish", arrive))

    route = DestinationRoute(Destination(SINK, SINK), LocalBus({SINK: take}))
    return Relay(plane, buses={}, fixed_routes=[route])
