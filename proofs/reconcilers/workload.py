"""The simulation of reconcilers: reactions are lost for good, and the reconcilers repair the rest.

A seed draws a few agents that own and grant, some deletions, and then damage: a cascade that does
nothing, events that were taken and not reacted to, a removal that was acknowledged and not carried
out, a tombstone that is gone, a subscriber that vanishes while it is waited for, dead letters of a
destination that is gone or parked, a runtime that dies, a client deleted behind our back, a removed
resource that turns up again, a plane that dies in the middle of a pass, lists that are stale.  Then
time passes, the reconcilers run, and every invariant of agents must hold.  Much later what is over
is gone, and nothing else.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from proofs.agents.invariants import AgentSnapshot, read_agents, violations
from proofs.agents.lifecycle import CALLER, PLANS, TENANT, Fakes, spec_of
from proofs.agents.scenarios import wait_for_rest
from proofs.events.lossy_delivery import ABOUT, RECEIVER, LossyDelivery
from proofs.harness.cluster import PLANE, Client
from proofs.harness.simulation import ClusterParts, OpenDisk, Simulation, memory_disk
from proofs.harness.snapshot import Snapshot
from proofs.reconcilers.profiles import LOST, PROFILES, Storm
from tenure.app.agents import cascade
from tenure.app.agents import commands as agents
from tenure.app.agents.commands import RequestOptions
from tenure.app.events import subscriptions
from tenure.app.events.subscriptions import SubscriptionRequest
from tenure.app.pages import every
from tenure.app.safety import findings
from tenure.core.agent import AgentState
from tenure.core.errors import CallerError, CommitUnknown
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.operation import IntentState, OperationState
from tenure.core.records import (
    RECORD_NAMED,
    AgentRecord,
    CursorRecord,
    FindingRecord,
    LeaseRecord,
    ParkedRecord,
    SubscriptionRecord,
)
from tenure.core.records.table import dict_of
from tenure.core.subscription import SubscriptionKind
from tenure.ports.plane_api import OwnedAgents
from tenure.ports.store import Change, CommitRefusal, Drop, Put, Row, Store
from tenure.reconcilers import driver, leases
from tenure.reconcilers.driver import RECONCILERS, Driver, ReconcilePolicy
from tenure.testing.fakes import FakeProvider, World
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.loop import Dead, SeededLoop
from tenure.testing.memory_store import Tables
from tenure.testing.patches import patched

ROUNDS = 18
ROUND_SECONDS = 30.0
LATER_SECONDS = 200 * 86_400.0
LATER_ROUNDS = 6
"""So many that tombstones of the last rounds go before what they watch."""
STORM_ROUNDS = 4
"""Passes during which provider calls are struck by faults."""
NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


class ReconcilersSimulation(Simulation):
    """One run in which reactions are lost."""

    profiles = PROFILES
    delivers = True
    """Whether there is a relay."""

    def __init__(self, loop: SeededLoop, profile: Any, disk: OpenDisk = memory_disk) -> None:
        """Nothing has happened yet."""
        super().__init__(loop, profile, disk)
        self.client = Client(self)
        self.lost = 0
        self.drivers: dict[int, Driver] = {}
        self.planted: list[tuple[str, str]] = []
        self.delivery = LossyDelivery(self.loses)

    def build(self, loop: SeededLoop) -> ClusterParts:
        """The plans of the lifecycle over fakes; faults strike during the first passes."""
        self.rng = random.Random(f"reconcile/{loop.seed}")
        world, self.storm = World(loop), Storm(self.rng)
        self.fakes = Fakes(world, self.storm)
        return ClusterParts(PLANS.values(), world, self.fakes.all(), self.storm)

    def clients(self) -> Iterable[Coroutine[Any, Any, None]]:
        """None: one caller does everything before the calm."""
        return ()

    def loses(self, share: float = LOST) -> bool:
        """Whether this reaction is lost."""
        lost = self.rng.random() < share
        self.lost += lost
        return lost

    async def until_calm(self) -> None:
        """Create and delete agents while reactions are lost, do damage, then reconcile."""
        with self._losing():
            await self._make()
            self.wrong += await wait_for_rest(self)
            await self._delete()
            self.wrong += await wait_for_rest(self)
        await self._vanish()
        await self._do_damage()
        (await self.any_process()).crash()  # its lease stays behind
        await self._reconcile()

    async def rest(self, is_busy: Callable[[], bool]) -> list[str]:
        """Wait until the agents are at rest."""
        assert not is_busy()
        return await wait_for_rest(self)

    async def check(self, snapshot: Snapshot) -> list[str]:
        """The invariants of agents, and the sentence of every reconciler."""
        store = self.disk.observer()
        wrong = await self._unreported() + self._left_alone()
        agents_state = await read_agents(
            store, self.world, self.fakes,
            plans=PLANS, acknowledged_ids=self.client.acknowledged_ids,
            kernel=snapshot,
        )  # fmt: skip
        wrong += [
            line for line in violations(agents_state) if not _waits_for_a_person(agents_state, line)
        ]
        wrong += self._grants_without_granter(agents_state) + await self._leases()
        wrong += await self.delivery.violations(store) + await self._letters()
        return wrong + await self._much_later()

    def counts(self) -> Mapping[str, int]:
        """Reactions that were lost."""
        return {"lost": self.lost}

    async def _make(self) -> None:
        """Agents, of which some own others and one has granted something."""
        made: list[str] = []
        for number, name in enumerate(NAMES):
            caller = CALLER
            given: dict[str, object] = {}
            if number and self.rng.random() < 0.6:
                given["parent"] = NAMES[self.rng.randrange(number)]
            elif made and self.rng.random() < 0.5:
                caller = caller._replace(principal=made[0])
            options = RequestOptions(idempotency_key=f"make {name}")
            spec = spec_of(name, **given)

            def ask(plane: Any, s: Any = spec, c: Any = caller, a: Any = options) -> Any:
                return agents.create_agent(plane, c, s, request_options=a)

            accepted = await self.client.ask(ask)
            self.client.acknowledged_ids.append(accepted.id)
            made.append(accepted.agent)
            await wait_for_rest(self)
            await self._subscribe(
                SubscriptionRequest(f"of-{name}", SubscriptionKind.NATS, target=ABOUT, agent=name)
            )

    async def _subscribe(self, options: SubscriptionRequest) -> None:
        def ask(plane: Any) -> Any:
            return subscriptions.create_subscription(plane, CALLER, options)

        with suppress(CallerError):  # an agent that could not be made
            await self.client.ask(ask)

    async def _vanish(self) -> None:
        """A required subscriber is gone with nobody told, while a suspend waits for it."""
        if self.delivers:
            await self.client.ask(self.delivery.carry)  # what was told before says nothing of it
        store = self.disk.observer()
        ready = await store.list_rows(AgentRecord, {"state": AgentState.READY, "operation": None})
        if not ready or self.rng.random() < 0.5:
            return
        required = SubscriptionRequest(
            "required", SubscriptionKind.PULL, types=("agent.suspending",), required=True
        )
        await self._subscribe(required)
        name = str(ready[0].name)

        def ask(plane: Any) -> Any:
            return agents.suspend_agent(plane, CALLER, name, drain_seconds=0.0)

        with suppress(CallerError):  # an owner of it is closed
            accepted = await self.client.ask(ask)
            self.client.acknowledged_ids.append(accepted.id)
        await asyncio.sleep(ROUND_SECONDS)
        gone = [row for row in await store.list_rows(SubscriptionRecord, {}) if row.required]
        drops = tuple(Drop("subscription", (row.id,)) for row in gone)
        await store.commit(Change("", (), drops))

    async def _delete(self) -> None:
        if self.rng.random() < 0.15:  # one that needs a person
            verb = FaultPoint("access", "remove", self.storm.calls["access", "remove"] + 1)
            self.storm.script[verb] = Fault.REFUSED
        for name in self.rng.sample(NAMES, self.rng.randint(1, 2)):
            options = RequestOptions(idempotency_key=f"delete {name}")

            def ask(plane: Any, n: str = name, a: Any = options) -> Any:
                return agents.delete_agent(plane, CALLER, n, drain_seconds=0.0, request_options=a)

            with suppress(CallerError):
                accepted = await self.client.ask(ask)
                self.client.acknowledged_ids.append(accepted.id)
                await wait_for_rest(self)

    @contextmanager
    def _losing(self) -> Iterator[None]:
        """Reactions are lost: cascades, tombstones, and removals that were acknowledged."""
        walk, apply, remove = cascade.delete_owned, Tables.apply, FakeProvider._remove  # noqa: SLF001

        async def delete_owned(plane: Any, agent: str, operation: str) -> OwnedAgents:
            if self.loses():
                return OwnedAgents(())
            return await walk(plane, agent, operation)

        def losing(tables: Tables, change: Change) -> CommitRefusal | None:
            change = change.expand_prepared()
            writes = tuple(
                write
                for write in change.writes
                if not (isinstance(write, Put) and write.table == "tombstone" and self.loses())
            )
            return apply(tables, replace(change, writes=writes))

        def _remove(provider: FakeProvider, key: ResourceKey, fault: Fault | None) -> None:
            thing = self.world.things.get((provider.name, key.text))
            remove(provider, key, fault)
            if thing is not None and thing.owner == PLANE and self.loses():
                self.world.things[provider.name, key.text] = thing  # it said so, and did nothing

        with (
            patched(cascade, delete_owned=delete_owned),
            patched(Tables, apply=losing),
            patched(FakeProvider, _remove=_remove),
        ):
            yield

    async def _do_damage(self) -> None:
        """Damage the world behind the back of the plane."""
        store = self.disk.observer()
        for row in await store.list_rows(AgentRecord, {"state": AgentState.READY}):
            for thing in self.world.holds(agent=row.uid):
                if thing.provider == "runtime" and self.loses(0.3):
                    self.fakes.runtime.stopped.add(thing.key.text)
                elif thing.provider != "runtime" and self.loses(0.1):
                    del self.world.things[thing.provider, thing.key.text]
        for at, (thing, _) in list(self.world.removed.items()):
            if at not in self.world.things and self.loses():
                self.world.things[at] = thing
        for number in range(self.rng.randint(0, 2)):
            key = resource_key(
                PLANE, tenant="default", agent=f"{number:032x}", generation=1, slot="runtime",
                name="runtime",
            )  # fmt: skip
            self.world.plant("runtime", key, owner=PLANE)
            self.world.things["runtime", key.text].key = key
            self.planted.append(("runtime", key.text))
        for destination in (RECEIVER, "gone"):
            if self.loses(0.5):
                await store.commit(Change("", (), _dead_letters(destination)))

    async def _reconcile(self) -> None:
        """Run every reconciler again and again; faults strike the first passes."""
        for number in range(ROUNDS):
            self.storm.rate = 0.1 if number < STORM_ROUNDS else 0.0
            process = await self.any_process()
            if number < STORM_ROUNDS and self.rng.random() < 0.5:
                process.wire.crash_at = len(process.wire.crossings) + self.rng.randint(1, 120)
            with suppress(Dead, CommitUnknown):
                await process.ask(self._pass)
            await asyncio.sleep(ROUND_SECONDS)
            for one in self.processes:
                one.wire.crash_at = 0

    async def _pass(self, plane: Any) -> None:
        mine = self.drivers.get(id(plane))
        if mine is None:
            mine = self.drivers[id(plane)] = Driver(
                plane, clock=self.clock, policy=ReconcilePolicy()
            )
        with suppress(CallerError):
            await mine.run_now("", False)  # noqa: FBT003 (as the face asks)
        if self.delivers:
            await self.delivery.carry(plane)

    # --- what must hold beside the sentences about agents --------------------------------------

    def _left_alone(self) -> list[str]:
        """What our records never heard of is still there; then it is out of the way."""
        things = self.world.things
        wrong = [f"no_false_deletion: {key}" for key in self.planted if key not in things]
        for at in self.planted:
            self.world.things.pop(at, None)
        return wrong

    def _grants_without_granter(self, agents_state: AgentSnapshot) -> list[str]:
        gone = [uid for uid, row in agents_state.agents.items() if row.state == AgentState.DELETED]
        return [
            f"no_grant_outlives_its_granter: {key}"
            for uid in gone
            for key in self.fakes.access.granted_by(uid)
        ]

    async def _unreported(self) -> list[str]:
        """Whatever is stuck is a finding."""
        store = self.disk.observer()
        stuck = await store.list_open(states=[OperationState.STUCK])
        rows = await store.list_rows(
            FindingRecord, {"reconciler": "operations", "resolved_at": None}
        )
        told = {findings.body_of(row).get("operation") for row in rows}
        return [f"stuck_is_reported: {row.id!s}" for row in stuck if row.id not in told]

    async def _letters(self) -> list[str]:
        """What is parked has a destination, and is a finding."""
        store = self.disk.observer()
        cursors = {row.destination: row.since for row in await store.list_rows(CursorRecord, {})}
        rows = await store.list_rows(FindingRecord, {"reconciler": "letters", "resolved_at": None})
        told = {findings.body_of(row)["destination"] for row in rows}
        parked = {row.destination for row in await store.list_rows(ParkedRecord, {})}
        silent = {name for name, since in cursors.items() if since is not None}
        return [f"no_letter_outlives_its_destination: {one!s}" for one in parked - set(cursors)] + [
            f"what_is_parked_is_told: {one!s}" for one in (parked ^ told) - silent
        ]

    async def _much_later(self) -> list[str]:
        """Somebody starts a plane again when all of this is long over."""
        before, held = await _rows(self.disk.observer()), set(self.world.things)
        await asyncio.sleep(LATER_SECONDS)
        process = self.boot("much later")
        await process.start()
        for _ in range(LATER_ROUNDS):
            await process.ask(self._pass)
            await asyncio.sleep(ROUND_SECONDS)
        process.crash()
        await self.world.quiet()
        wrong = [f"no_false_deletion: {key}" for key in sorted(held ^ set(self.world.things))]
        return wrong + _kept_as_promised(
            before, await _rows(self.disk.observer()), self.clock.now()
        )

    async def _leases(self) -> list[str]:
        store = self.disk.observer()
        before = self.clock.now() - leases.RETENTION_SECONDS - 2 * ROUND_SECONDS
        return [
            f"no_lease_outlives_its_holder: {row.name!s}"
            for row in await store.list_rows(LeaseRecord, {})
            if row.until < before and row.name != "reconcilers"
        ]


def _dead_letters(destination: str) -> tuple[Put, ...]:
    """One that nobody sees to any more: it was tried often enough."""
    agent = "d" * 32
    parked: Row = {"attempts": 20, "due_at": None, "why": "no", "since": 0.0}
    letter: Row = {
        "tenant": TENANT, "operation": "e" * 32, "type": "agent.ready", "at": 0.0, "body": "{}",
        "sequence": 1,
    }  # fmt: skip
    return Put("parked", (destination, agent), parked), Put(
        "letter", (destination, agent, 1), letter
    )


Rows = dict[str, list[Row]]


async def _rows(store: Store) -> Rows:
    """Every row of what is over one day."""
    tables = ("idempotency", "awaited", "finding", "operation", "journal", "intent", "tombstone")
    records: dict[str, Any] = RECORD_NAMED
    return {table: [dict_of(row) async for row in every(store, records[table])] for table in tables}


def _kept_as_promised(before: Rows, after: Rows, now: float) -> list[str]:
    """What is over is gone; what an agent holds is there, with the operation that made it."""
    holds = {row["operation"] for row in before["intent"] if row["slot"] and _is_held(row)}
    there = {row["id"]: row for row in after["operation"]}
    wrong = [f"what_is_held_is_known: {name!s}" for name in sorted(holds - set(there), key=str)]
    watched = {row["operation"] for row in after["tombstone"]}
    over: list[tuple[str, Any]] = [("idempotency", row["at"]) for row in after["idempotency"]]
    over += [("awaited", row["acknowledged_at"] or now) for row in after["awaited"]]
    over += [("finding", row["resolved_at"] or now) for row in after["finding"]]
    over += [
        ("operation", row["ended_at"] or now)
        for name, row in there.items()
        if name not in holds | watched
    ]
    wrong += [f"kept_no_longer: {table}" for table, at in over if at < now - LATER_SECONDS / 2]
    parts = {row["operation"] for table in ("journal", "intent") for row in after[table]}
    return wrong + [f"kept_no_longer: parts of {name!s}" for name in parts - set(there)]


def _is_held(intent: Row) -> bool:
    return intent["state"] != IntentState.BURNED


def _waits_for_a_person(agents_state: AgentSnapshot, line: str) -> bool:
    """Whether it is so because a deletion is stuck, and told: what it closed stays as it was."""
    stuck = any(
        row.state == OperationState.STUCK for row in agents_state.kernel.operations.values()
    )
    sentence, _, words = line.partition(": ")
    uid = words.split()[1] if words.startswith("agent ") else ""
    below = sentence == "ready_agents_are_served" and agents_state.agents[uid].parent is not None
    failed = sentence == "no_child_outlives_its_parent" and " DELETE_FAILED " in words
    return stuck and (below or failed)


@contextmanager
def without(reconciler: str) -> Iterator[None]:
    """Run all reconcilers but this one; the relay is the one called outbox."""
    left = {name: one for name, one in RECONCILERS.items() if name != reconciler}
    delivers = reconciler != "outbox"
    with patched(driver, RECONCILERS=left), patched(ReconcilersSimulation, delivers=delivers):
        yield


def off(reconciler: str) -> Callable[[], Any]:
    """The mutation that leaves out one reconciler."""
    return lambda: without(reconciler)
