"""Agents over fakes: the plans with short times, the fake providers, and a cluster of them.

`FakeProvider` holds resources; what is here adds what the plans of the lifecycle ask beside the
four verbs, in the same world and struck by the same faults.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from proofs.harness.cluster import SETTINGS, Cluster, Disk
from tenure.app.agents.spec import AgentSpec, read_spec
from tenure.core.errors import Invalid, Rejected
from tenure.core.ids import ResourceKey
from tenure.core.plan import Plan, Step
from tenure.core.roles import Caller, Role
from tenure.plans.agents import lifecycle
from tenure.ports.provider import Observation, Presence, Spec
from tenure.ports.runtime import MISSING, LogPart, Status
from tenure.testing.fakes import FakeProvider, World
from tenure.testing.faults import ALPHABET, Fault, Faults
from tenure.testing.loop import SeededLoop
from tenure.testing.plans import LIMITS

TENANT = "default"
CALLER = Caller(TENANT, "someone", Role.ADMIN)
SLOTS = ("identity", "access", "runtime", "credentials")
LONG_SECONDS = 1e6
"""A deadline beyond this is no deadline."""
READY_CALL_SECONDS = 3.0
_WRITE = (
    Fault.LOST, Fault.REPLY_LOST, Fault.CUT, Fault.BUSY, Fault.SLOW, Fault.SLOWER, Fault.BROKE,
    Fault.DUPLICATED, Fault.SLOWEST, Fault.REFUSED_FOR_A_WHILE,
)  # fmt: skip
LETTERS: Mapping[str, tuple[Fault, ...]] = {
    **ALPHABET,
    "status": ALPHABET["inspect"],
    "wait_ready": ALPHABET["inspect"],
    "stop": _WRITE,
    "raise_epoch": _WRITE,
    "close_agent": _WRITE,
    "revoke_granter": _WRITE,
    "reopen_agent": (*_WRITE, Fault.REFUSED),
}
"""Every fault that means something for a verb of the lifecycle."""


def _short(step: Step) -> Step:
    """The same step with the times of a virtual minute."""
    limits = step.limits
    forever = limits.deadline_seconds > LONG_SECONDS
    waits = step.name == "runtime_ready"
    return replace(
        step,
        limits=replace(
            LIMITS,
            call_seconds=READY_CALL_SECONDS if waits else LIMITS.call_seconds,
            deadline_seconds=limits.deadline_seconds if forever else LIMITS.deadline_seconds,
        ),
    )


PLANS: Mapping[str, Plan] = {
    plan.name: Plan(
        plan.name,
        stages=[tuple(_short(step) for step in stage) for stage in plan.stages],
        subject=plan.subject,
    )
    for plan in lifecycle.PLANS
}
"""The product's own plans, do and undo untouched; only their times are short."""


def spec_of(name: str, **more: object) -> AgentSpec:
    """An agent as somebody wants it; short-tempered, since its world is quick."""
    runtime = {"command": ["agent"], "ready_seconds": 6.0, "drain_seconds": 1.0}
    wanted = {"audience": "https://tool", "scopes": ["tool:use"]}
    return read_spec(
        {"name": name, "runtime": runtime, "roles": ["reader"], "credentials": [wanted], **more}
    )


# --- what the plans ask beside the four verbs -----------------------------------------------------


class FakeRuntime(FakeProvider):
    """See `tenure.ports.runtime.RuntimeProvider`."""

    zones = ("here",)

    def __init__(self, world: World, *, faults: Faults | None = None) -> None:
        """Nothing runs."""
        super().__init__(world, "runtime", faults=faults)
        self.stopped: set[str] = set()
        self.busy: set[str] = set()
        """Keys of those that say they work on something."""
        self.missing = False
        """Whether what is to be started cannot be found."""

    async def digest(self, spec: Spec) -> Spec:
        """The spec with a digest; an egress list is refused, which this cannot enforce."""
        if spec.get("network"):
            raise Invalid("runtime.network: this runtime cannot enforce it")
        found = f"{MISSING}command: it cannot be found" if self.missing else "a digest"
        return {**spec, "digests": {"agent": found}}

    async def status(self, key: ResourceKey) -> Status:
        """How it is."""
        status: Status = await self._call("status", key, self._status)
        return status

    async def wait_ready(self, key: ResourceKey, *, seconds: float) -> Status:
        """Look, and look again at the end if it was starting."""
        status: Status = await self._call("wait_ready", key, self._status)
        if status.presence is Presence.STARTING and seconds > 0:
            thing = self._world.things.get((self.name, key.text))
            now = self._world.loop.time()
            left = seconds if thing is None else min(seconds, thing.ready_at - now)
            await asyncio.sleep(max(0.0, left))
            status = self._status(key, None)
        return status

    async def listens_at(self, key: ResourceKey, address: str) -> bool:
        """Nobody takes a port here: it listens where it was put, while it is ready."""
        seen = self._inspect(key, None)
        return seen.presence is Presence.READY and seen.reference["address"] == address

    async def logs(self, key: ResourceKey, *, lines: int = 100) -> str:
        """One line, which names it."""
        there = ("runtime", key.text) in self._world.things
        return f"{key.text} speaks\n" if there and lines else ""

    async def follow(self, key: ResourceKey, *, since: int) -> LogPart:
        """What it printed from there on."""
        text = (await self.logs(key))[since:]
        return LogPart(text, since + len(text))

    async def stop(self, key: ResourceKey) -> None:
        """Kill it and burn its key; what it printed stays."""
        await self._call("stop", key, self._stop)

    def _stop(self, key: ResourceKey, _: Fault | None) -> None:
        at = (self.name, key.text)
        self._world.burned.setdefault(at, self._world.loop.time())
        self.stopped.add(key.text)
        self._world.note(self.name, "stop", key, "kept")

    def _ensure(self, key: ResourceKey, fault: Fault | None, spec: Spec) -> Mapping[str, object]:
        digests = cast("Mapping[str, str]", spec.get("digests", {}))
        if why := [one for one in digests.values() if one.startswith(MISSING)]:
            self._world.burned.setdefault((self.name, key.text), self._world.loop.time())
            self._world.note(self.name, "ensure", key, "refused")
            raise Rejected(why[0].removeprefix(MISSING))
        return {**super()._ensure(key, fault, spec), "address": f"{key.text}:1"}

    def _inspect(self, key: ResourceKey, fault: Fault | None) -> Observation:
        seen = super()._inspect(key, fault)
        if seen.presence in {Presence.ABSENT, Presence.FOREIGN}:
            return seen
        if key.text in self.stopped:
            return seen._replace(presence=Presence.BROKEN)
        return seen._replace(reference={**seen.reference, "address": f"{key.text}:1"})

    def _status(self, key: ResourceKey, fault: Fault | None) -> Status:
        presence = self._inspect(key, fault).presence
        busy = presence is Presence.READY and key.text in self.busy
        return Status(
            presence, busy, message="" if presence is Presence.READY else "it said nothing"
        )


class Door:
    """Whether something is minted for an agent, and by whose word: an epoch that only grows."""

    def __init__(self) -> None:
        """Every agent is open."""
        self.stands: dict[str, tuple[int, bool]] = {}

    def is_open(self, agent: str) -> bool:
        """Whether anything is minted for it now."""
        return not self.stands.get(agent, (0, False))[1]


class FakeIdentity(FakeProvider):
    """What the lifecycle asks of `tenure.ports.identity.Authorization`."""

    def __init__(self, world: World, *, faults: Faults | None = None) -> None:
        """Nobody is known."""
        super().__init__(world, "identity", faults=faults)
        self.door = Door()

    async def raise_epoch(
        self, tenant: str, agent: str, *, epoch: int, closed: bool = False
    ) -> None:
        """A smaller epoch changes nothing; the same one may close and never opens."""
        work = partial(self._raise, closed=closed)
        await self._call("raise_epoch", _whose(tenant, agent), work, epoch)

    def _raise(self, key: ResourceKey, _: Fault | None, epoch: int, *, closed: bool) -> None:
        last, shut = self.door.stands.get(key.agent, (0, False))
        if epoch > last or (epoch == last and closed and not shut):
            self.door.stands[key.agent] = (epoch, closed)


class FakeAccess(FakeProvider):
    """What the lifecycle asks of `tenure.ports.access.Access`."""

    def __init__(self, world: World, *, faults: Faults | None = None) -> None:
        """Nothing is granted."""
        super().__init__(world, "access", faults=faults)
        self.revoked: dict[str, None] = {}
        """Keys whose grants were taken away."""

    def granted_by(self, granter: str) -> list[str]:
        """The truth: the keys under which something that this one has granted still stands."""
        return [
            thing.key.text
            for thing in self._world.holds(provider="access")
            if thing.spec.get("granted_by") == granter
            and thing.spec.get("roles")
            and thing.key.text not in self.revoked
        ]

    async def revoke_granter(self, tenant: str, granter: str) -> int:
        """Take away what this one has granted."""
        count: int = await self._call("revoke_granter", _whose(tenant, granter), self._revoke)
        return count

    def _revoke(self, key: ResourceKey, _: Fault | None) -> int:
        gone = self.granted_by(key.agent)
        self.revoked.update(dict.fromkeys(gone))
        return len(gone)


class FakeCredentials(FakeProvider):
    """What the lifecycle asks of `tenure.ports.credentials.Credentials`."""

    def __init__(self, world: World, *, faults: Faults | None = None) -> None:
        """Nothing is registered."""
        super().__init__(world, "credentials", faults=faults)
        self.door = Door()

    async def is_open(self, tenant: str, agent: str) -> bool:
        """Whether anything may be minted for the agent."""
        assert tenant
        return self.door.is_open(agent)

    async def close_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        """False if a later epoch was seen."""
        work = partial(self._turn, closed=True)
        done: bool = await self._call("close_agent", _whose(tenant, agent), work, epoch)
        return done

    async def reopen_agent(self, tenant: str, agent: str, *, epoch: int) -> bool:
        """False if a later epoch was seen."""
        work = partial(self._turn, closed=False)
        done: bool = await self._call("reopen_agent", _whose(tenant, agent), work, epoch)
        return done

    def _turn(self, key: ResourceKey, _: Fault | None, epoch: int, *, closed: bool) -> bool:
        if epoch < self.door.stands.get(key.agent, (0, False))[0]:
            return False
        self.door.stands[key.agent] = (epoch, closed)
        return True


def _whose(tenant: str, agent: str) -> ResourceKey:
    return ResourceKey(agent, "", tenant, agent, 0, "", "")


class Fakes:
    """The four providers of a world."""

    def __init__(self, world: World, faults: Faults) -> None:
        """Nothing is held."""
        self.identity = FakeIdentity(world, faults=faults)
        self.access = FakeAccess(world, faults=faults)
        self.runtime = FakeRuntime(world, faults=faults)
        self.credentials = FakeCredentials(world, faults=faults)

    def all(self) -> dict[str, FakeProvider]:
        """By slot."""
        return {
            "identity": self.identity,
            "access": self.access,
            "runtime": self.runtime,
            "credentials": self.credentials,
        }


class AgentCluster(Cluster):
    """A world of agents, a disk, and the processes on it."""

    def __init__(
        self,
        loop: SeededLoop,
        *,
        faults: Faults | None = None,
        disk: Disk | None = None,
        plans: Mapping[str, Plan] = PLANS,
        settings: Any = SETTINGS,
    ) -> None:
        """Nothing runs yet."""
        world = World(loop)
        self.faults = faults or Faults()
        self.fakes = Fakes(world, self.faults)
        super().__init__(
            loop,
            plans=plans.values(),
            world=world,
            providers=self.fakes.all(),
            disk=disk,
            settings=settings,
        )
