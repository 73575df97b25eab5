"""Fake providers that keep their resources in a `World`, which a test can inspect.

Requests travel in the world, not in the process that sent them: a request that has left is applied
when it arrives, even if its sender has died, and a reply to a dead process is dropped.
`FakeProvider` fulfils `tenure.ports.provider.Provider`; its safeguards can be switched off
(`burns`, `fences`, `idempotent`, `askable`) to show their purpose, or to simulate a service that
lacks them.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from tenure.core.errors import OutcomeUnknown, ProviderError, Rejected, Unavailable
from tenure.core.ids import ResourceKey
from tenure.ports.provider import Observation, OwnedResource, Presence, Spec
from tenure.testing.faults import Fault, Faults
from tenure.testing.loop import SeededLoop, Trace

LATENCY_SECONDS = 0.01
"""The duration of a call without a fault."""
NEVER = 1e12


@dataclass(slots=True)
class Thing:
    """One resource as its provider holds it."""

    provider: str
    key: ResourceKey
    owner: str
    spec: Mapping[str, object]
    since: float
    ready_at: float
    times: int = 1
    """How often it was made; more than once only if a provider is not idempotent."""


class AppliedRequest(NamedTuple):
    """One request that arrived, and its effect."""

    at: float
    provider: str
    verb: str
    key: ResourceKey
    effect: str
    """made, made again, converged, kept, removed, nothing, refused, or gone by another's hand."""


class World:
    """The resources that really exist, and the requests that are on their way."""

    def __init__(self, loop: SeededLoop) -> None:
        self.loop = loop
        self.trace = Trace()
        self.things: dict[tuple[str, str], Thing] = {}
        self.log: list[AppliedRequest] = []
        self.made: Counter[tuple[str, str]] = Counter()
        """How often each (provider, key) was made, ever."""
        self.burned: dict[tuple[str, str], float] = {}
        self.generations: dict[tuple[str, str], int] = {}
        self.removed: dict[tuple[str, str], tuple[Thing, float]] = {}
        self.overtaken: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._busy_until = 0.0

    def holds(
        self, *, provider: str = "", agent: str = "", generation: int = 0, key: str = ""
    ) -> list[Thing]:
        """All resources of this provider, agent, generation or key, including foreign ones."""
        return [
            thing
            for thing in self.things.values()
            if (not provider or thing.provider == provider)
            and (not agent or thing.key.agent == agent)
            and (not generation or thing.key.generation == generation)
            and (not key or thing.key.text == key)
        ]

    def plant(self, provider: str, key: ResourceKey, owner: str = "someone else") -> None:
        """Put a foreign resource under this key, if the key is free."""
        now = self.loop.time()
        thing = Thing(provider, key._replace(agent="", generation=0), owner, {}, now, now)
        self.things.setdefault((provider, key.text), thing)

    def note(self, provider: str, verb: str, key: ResourceKey, effect: str) -> None:
        """Record the effect of a request."""
        now = self.loop.time()
        self.log.append(AppliedRequest(now, provider, verb, key, effect))
        self.trace.add(f"{now:.9f}", provider, verb, key.text, effect)

    def send(self, when: float, arrive: Callable[[], None]) -> None:
        """Let a request arrive at this time, even if its sender dies."""
        self._busy_until = max(self._busy_until, when)
        self.loop.outside(when, arrive)

    async def quiet(self) -> None:
        """Return when no request is on its way."""
        while (left := self._busy_until - self.loop.time()) > 0:  # noqa: ASYNC110 (it may grow)
            await asyncio.sleep(left)
        await asyncio.sleep(0)


class FakeProvider:
    """A service that keeps resources in a world, with injected faults."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        faults: Faults | None = None,
        burns: bool = True,
        fences: bool = True,
        idempotent: bool = True,
        askable: bool = True,
        ready_seconds: float = 0.0,
        lag_seconds: float = 0.0,
        latency: Callable[[], float] = lambda: LATENCY_SECONDS,
    ) -> None:
        """A provider of this name; `lag_seconds` is the delay of its listing."""
        self.name = name
        self.faults = faults or Faults()
        self._world = world
        self._burns = burns
        self._fences = fences
        self._idempotent = idempotent
        self._askable = askable
        self._ready_seconds = ready_seconds
        self._lag_seconds = lag_seconds
        self._latency = latency
        self._refuses: dict[tuple[str, str], float] = {}
        """Until when (verb, key) is refused."""
        self._page: list[OwnedResource] = []

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Make it, or converge it to `spec`."""
        reference: Mapping[str, object] = await self._call("ensure", key, self._ensure, dict(spec))
        return reference

    async def inspect(self, key: ResourceKey) -> Observation:
        """What stands under this key."""
        observed: Observation = await self._call("inspect", key, self._inspect)
        return observed

    async def remove(self, key: ResourceKey) -> None:
        """Remove it and burn its key."""
        await self._call("remove", key, self._remove)

    async def list_owned(self, plane: str) -> AsyncIterator[OwnedResource]:
        """Everything of this plane, perhaps a while ago."""
        nowhere = ResourceKey("", plane, "", "", 0, "", "")
        for owned in await self._call("list_owned", nowhere, self._list_owned):
            yield owned

    # --- on the way ----------------------------------------------------------------------------

    async def _call(
        self, verb: str, key: ResourceKey, apply: Callable[..., Any], *arguments: object
    ) -> Any:
        """Send a request and wait for its reply, which may never come."""
        world, delays = self._world, self.faults.delays
        fault = self.faults.strike(self.name, verb)
        reply: asyncio.Future[Any] = world.loop.create_future()
        now = world.loop.time()
        at = now + self._latency()
        work = partial(apply, key, fault, *arguments)
        told = partial(self._arrive, verb, key, work, reply)
        untold = partial(self._arrive, verb, key, work, None)
        match fault:
            case Fault.LOST:
                pass
            case Fault.REPLY_LOST:
                world.send(at, untold)
            case Fault.CUT:
                world.send(at, partial(_fail, reply, OutcomeUnknown("the connection was cut")))
            case Fault.BROKE:
                world.send(at, untold)
                world.send(at, partial(_fail, reply, OutcomeUnknown("500: something broke")))
            case Fault.BUSY:
                world.send(at, partial(_fail, reply, Unavailable("429: too many requests")))
            case Fault.REFUSED_ONCE:
                world.send(at, partial(_fail, reply, Rejected("not this time")))
            case Fault.EXISTS:
                world.send(at, partial(_fail, reply, OutcomeUnknown("409: it exists")))
            case Fault.DUPLICATED:
                world.send(at, told)
                world.send(at + delays.duplicate, untold)
            case Fault.SLOW:
                world.send(now + delays.slow, told)
            case Fault.SLOWER:
                world.send(now + delays.slower, told)
            case Fault.SLOWEST:
                world.send(now + delays.slowest, told)
            case Fault.REORDERED:
                self._overtake(key, now + delays.slowest, untold)
            case _:
                self._befall(verb, key, fault)
                world.send(at, told)
        return await reply

    def _befall(self, verb: str, key: ResourceKey, fault: Fault | None) -> None:
        """What a fault does to the service rather than to the call."""
        match fault:
            case Fault.REFUSED:
                self._refuses[verb, key.text] = NEVER
            case Fault.REFUSED_FOR_A_WHILE:
                until = self._world.loop.time() + self.faults.delays.heal
                self._refuses[verb, key.text] = until
            case Fault.FOREIGN:
                self._world.plant(self.name, key)
            case Fault.GONE:
                if self._world.things.pop((self.name, key.text), None) is not None:
                    self._world.note(self.name, "remove", key, "gone")
            case _:
                pass

    def _overtake(self, key: ResourceKey, latest: float, arrive: Callable[[], None]) -> None:
        """Hold a request back until a remove of its key has been applied, or until `latest`."""
        arrived = False

        def once() -> None:
            nonlocal arrived
            if not arrived:
                arrived = True
                arrive()

        self._world.overtaken.setdefault((self.name, key.text), []).append(once)
        self._world.send(latest, once)

    def _arrive(
        self,
        verb: str,
        key: ResourceKey,
        work: Callable[[], Any],
        reply: "asyncio.Future[Any] | None",
    ) -> None:
        """A request has arrived: apply it, and answer whoever still listens."""
        until = self._refuses.get((verb, key.text), 0.0)
        answer: Any = None
        error: ProviderError | None = None
        try:
            if until > self._world.loop.time():
                self._world.note(self.name, verb, key, "refused")
                raise Rejected(f"{self.name} refuses to {verb} {key.text}")
            answer = work()
        except ProviderError as failed:
            error = failed
        if reply is None or reply.done():
            return
        if error is not None:
            reply.set_exception(error)
        else:
            reply.set_result(answer)

    # --- in the service ------------------------------------------------------------------------

    def _ensure(self, key: ResourceKey, fault: Fault | None, spec: Spec) -> Mapping[str, object]:
        world, at = self._world, (self.name, key.text)
        now = world.loop.time()
        thing = world.things.get(at)
        why = ""
        if thing is not None and thing.owner != key.plane:
            why = f"{key.text} belongs to {thing.owner}"
        elif self._burns and at in world.burned:
            why = f"{key.text} is burned"
        elif self._fences and key.generation < world.generations.get(at, 0):
            why = f"generation {key.generation} is older than {world.generations[at]}"
        if why:
            world.note(self.name, "ensure", key, "refused")
            raise Rejected(why)
        world.generations[at] = max(key.generation, world.generations.get(at, 0))
        if thing is None:
            ready_at = now + self._ready_seconds
            if fault is Fault.UNREADY:
                ready_at = now + self.faults.delays.ready
            elif fault is Fault.NEVER_READY:
                ready_at = NEVER
            world.things[at] = Thing(self.name, key, key.plane, spec, now, ready_at)
            world.made[at] += 1
            effect = "made"
        elif not self._idempotent:
            thing.times += 1
            world.made[at] += 1
            effect = "made again"
        else:
            effect = "kept" if thing.spec == spec else "converged"
            thing.spec, thing.key = spec, key
        world.note(self.name, "ensure", key, effect)
        return {"provider": self.name, "key": key.text}

    def _inspect(self, key: ResourceKey, _: Fault | None) -> Observation:
        if not self._askable:
            raise Rejected(f"{self.name} cannot be asked")
        thing = self._world.things.get((self.name, key.text))
        if thing is None:
            return Observation(Presence.ABSENT)
        reference = {"provider": self.name, "key": key.text}
        if thing.owner != key.plane:
            return Observation(Presence.FOREIGN, {}, thing.owner, 0)
        ready = thing.ready_at <= self._world.loop.time()
        presence = Presence.READY if ready else Presence.STARTING
        return Observation(presence, reference, thing.owner, thing.key.generation)

    def _remove(self, key: ResourceKey, _: Fault | None) -> None:
        world, at = self._world, (self.name, key.text)
        now = world.loop.time()
        thing = world.things.get(at)
        if thing is not None and thing.owner != key.plane:
            world.note(self.name, "remove", key, "refused")
            raise Rejected(f"{key.text} belongs to {thing.owner}")
        world.burned.setdefault(at, now)
        if thing is not None:
            del world.things[at]
            world.removed[at] = (thing, now)
        world.note(self.name, "remove", key, "removed" if thing is not None else "nothing")
        for late in world.overtaken.pop(at, ()):
            world.send(now + self.faults.delays.overtaken, late)

    def _list_owned(self, key: ResourceKey, fault: Fault | None) -> list[OwnedResource]:
        if fault is Fault.STALE_PAGE:
            return self._page
        now = self._world.loop.time()
        lag = max(self._lag_seconds, self.faults.delays.heal if fault is Fault.UNLISTED else 0.0)
        there = [
            thing
            for thing in self._world.holds(provider=self.name)
            if thing.owner == key.plane and (thing.since + lag <= now or not lag)
        ]
        lag = self.faults.delays.heal if fault is Fault.STILL_LISTED else self._lag_seconds
        there += [
            thing
            for (provider, text), (thing, at) in self._world.removed.items()
            if provider == self.name
            and thing.owner == key.plane
            and at + lag > now
            and (self.name, text) not in self._world.things
        ]
        self._page = [
            OwnedResource(thing.key.text, thing.key.agent, thing.key.generation, thing.since)
            for thing in there
        ]
        return self._page


def ledger(
    world: World, name: str, *, faults: Faults | None = None, askable: bool = True
) -> FakeProvider:
    """A service whose every request counts again; `World.made` says how often each key was charged.

    It can be asked what became of a request, or not even that.
    """
    return FakeProvider(
        world, name, faults=faults, burns=False, fences=False, idempotent=False, askable=askable
    )


def _fail(reply: "asyncio.Future[Any]", error: ProviderError) -> None:
    with suppress(asyncio.InvalidStateError):
        reply.set_exception(error)
