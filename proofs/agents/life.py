"""One life of agents: several planes race on one disk while callers ask for everything at once.

A seed draws how many planes there are, who dies when, which calls are struck, and what callers ask
of a few shared names.  From some moment on nothing more goes wrong; time passes until all is at
rest; then every sentence about agents is checked.  On the way an invoker asks again and again where
the agents are reached: after a close was acknowledged, nothing may start.

usage: python -m proofs.agents.life [--seeds 500] [--first 0] [--mix agents]
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from proofs.agents.crash import Act, ask, until_at_rest
from proofs.agents.invariants import Roll, call_the_roll, violations
from proofs.agents.lifecycle import CALLER, LETTERS, PLANS, TENANT, LifeRig
from proofs.harness.rig import Client
from proofs.harness.slow_disk import SlowDisk
from proofs.operations.history import Witness
from proofs.operations.invariants import journal_only_grew, read_books
from tenure.app.agents import invocations, quotas
from tenure.app.agents.commands import Asked
from tenure.app.operations import commands as operations
from tenure.core.agent import Verb
from tenure.core.errors import CallerError, CommitUnknown
from tenure.core.operation import OperationState
from tenure.plans.agents.lifecycle import CLOSING
from tenure.testing.faults import Call, Delays, Fault, Faults, Struck
from tenure.testing.loop import SeededLoop, VirtualClock, run
from tenure.testing.operators import by
from tenure.testing.tripwire import Side

CALM_SECONDS = 12.0
INVOKE_SECONDS = 0.05
QUOTA = 2
ENDLESS = frozenset({Fault.REFUSED})
"""What would leave things stuck for ever; drawn only where a life can still end."""


@dataclass(frozen=True, slots=True)
class Mix:
    """How likely things are."""

    planes: tuple[int, int] = (1, 3)
    acts: tuple[int, int] = (4, 9)
    within_seconds: float = 4.0
    deaths: tuple[int, int] = (0, 2)
    fault_rate: float = 0.04
    flush_seconds: float = 0.01
    cancels: float = 0.2
    cancel_within: float = 0.2
    verbs: tuple[str, ...] = (
        Verb.CREATE, Verb.CREATE, Verb.CREATE, Verb.SUSPEND, Verb.STOP, Verb.RESUME, Verb.RESUME,
        Verb.DELETE, Verb.DELETE,
    )  # fmt: skip
    names: tuple[str, ...] = ("alpha", "beta", "gamma")
    owned: float = 0.2
    """How often a created agent is to be owned by another."""
    keeps: float = 0.3
    quota: int | None = QUOTA
    queues: float = 0.0
    """How often a caller lets it wait for its turn."""
    instants: int = 1_000
    """How many moments there are at which callers ask: the fewer, the more ask at once."""


MIXES: Mapping[str, Mix] = {
    "agents": Mix(),
    "closing": Mix(
        fault_rate=0.02, names=("alpha",), acts=(5, 9), within_seconds=1.0, owned=0.0,
        deaths=(0, 1),
    ),
    "names": Mix(
        verbs=(Verb.CREATE, Verb.CREATE, Verb.CREATE, Verb.DELETE), acts=(6, 10), quota=None,
        within_seconds=3.0, instants=4, fault_rate=0.03, owned=0.0, flush_seconds=0.03,
    ),
    "quota": Mix(
        verbs=(Verb.CREATE, Verb.CREATE, Verb.CREATE, Verb.DELETE), acts=(6, 10),
        names=("alpha", "beta", "gamma", "delta", "epsilon"), within_seconds=3.0, instants=4,
        fault_rate=0.03, owned=0.0, flush_seconds=0.03,
    ),
    "owned": Mix(
        verbs=(Verb.CREATE, Verb.CREATE, Verb.DELETE), names=("alpha", "beta", "gamma", "delta"),
        acts=(8, 12), owned=0.9, quota=None, planes=(2, 3), fault_rate=0.0, within_seconds=6.0,
        instants=4, deaths=(0, 0), flush_seconds=0.15, cancels=0.0,
    ),
    "spared": Mix(
        verbs=(Verb.SUSPEND, Verb.SUSPEND, Verb.RESUME, Verb.DELETE, Verb.DELETE), keeps=1.0,
        names=("alpha",), cancels=0.9, cancel_within=0.02, fault_rate=0.02, owned=0.0,
        deaths=(0, 0), within_seconds=3.0,
    ),
    "queued": Mix(
        names=("alpha",), acts=(6, 10), within_seconds=1.5, owned=0.0, queues=0.7,
        fault_rate=0.02, deaths=(0, 1),
    ),
    "late": Mix(
        fault_rate=0.15, names=("alpha",), within_seconds=2.0, owned=0.0, cancels=0.5,
        verbs=(Verb.CREATE, Verb.SUSPEND, Verb.RESUME, Verb.RESUME, Verb.STOP),
    ),
}  # fmt: skip
"""A little of everything, and lives in which one safeguard is all that keeps a promise."""


class Wish(NamedTuple):
    """What one caller asks for, and when; and when it is taken back."""

    at: float
    act: Act
    cancel_after: float | None
    queue: bool = False


class Lived(NamedTuple):
    """What came of a seed."""

    seed: int
    wrong: list[str]
    trace: str
    operations: int
    invoked: int
    """Invocations that were let through."""


class Drawn(Faults):
    """Faults drawn from the seed until all is calm; none that would last for ever."""

    def __init__(self, seed: int, rate: float, loop: SeededLoop) -> None:
        """Strike so often."""
        super().__init__(delays=Delays(slower=4.0, slowest=20.0, heal=3.0))
        self._rng = random.Random(f"faults/{seed}")
        self._share = rate
        self._loop = loop

    def strike(self, provider: str, verb: str) -> Fault | None:
        """The fault of this call, if any."""
        self.calls[provider, verb] += 1
        if self._loop.time() >= CALM_SECONDS or self._rng.random() >= self._share:
            return None
        letters = [f for f in LETTERS[verb] if verb == "ensure" or f not in ENDLESS]
        fault = self._rng.choice([f for f in letters if f is not Fault.FOREIGN])
        self.struck.append(Struck(Call(provider, verb, self.calls[provider, verb]), fault))
        return fault


def _wishes(rng: random.Random, mix: Mix) -> list[Wish]:
    made = [Wish(0.0, Act(Verb.CREATE, name), None) for name in mix.names[:2]]
    for _ in range(rng.randint(*mix.acts)):
        verb = rng.choice(mix.verbs)
        given: dict[str, object] = {}
        name = rng.choice(mix.names)
        if verb == Verb.CREATE and rng.random() < mix.owned:
            given = {"parent": "alpha" if name != "alpha" else "beta"}
        if verb == Verb.SUSPEND and rng.random() < mix.keeps:
            given = {"keep_runtime": True}
        cancel = rng.uniform(0.0, mix.cancel_within) if rng.random() < mix.cancels else None
        at = mix.within_seconds * rng.randrange(mix.instants) / mix.instants
        queue = mix.queues > 0 and rng.random() < mix.queues
        made.append(Wish(at, Act(verb, name, given), cancel, queue))
    return sorted(made, key=lambda wish: wish.at)


class Simulation(LifeRig):
    """One life while it is lived."""

    def __init__(self, loop: SeededLoop, seed: int, mix: Mix) -> None:
        """Nothing has happened yet."""
        self.rng = random.Random(f"agents/{seed}")
        self.mix = mix
        clock = VirtualClock(loop)
        flush = self.rng.choice((0.0, mix.flush_seconds))
        super().__init__(loop, faults=Drawn(seed, mix.fault_rate, loop))
        witness = Witness(self.world.trace, loop.time)
        self.disk = SlowDisk(clock, witness, seed=seed, flush_seconds=flush, refuse_rate=0.0)
        self.client = Client(self)
        self.closed: dict[str, tuple[str, float]] = {}
        """By name, the close that was acknowledged last, and when; until somebody opens again."""
        self.wrong: list[str] = []
        self.invoked = 0

    async def run(self) -> Lived:
        """Live it to its end and say what was wrong."""
        loop, rng = self.loop, self.rng
        planes = [
            loop.create_task(self.supervise(f"plane {number}", **self._death()))  # type: ignore[arg-type]
            for number in range(rng.randint(*self.mix.planes))
        ]
        most = self.mix.quota
        if most is not None:
            await self.client.ask(lambda plane: quotas.set_quota(plane, CALLER, most=most))
        tasks = [
            loop.create_task(self._wish(number, wish))
            for number, wish in enumerate(_wishes(rng, self.mix))
        ]
        invoker = loop.create_task(self._invoke())
        await asyncio.sleep(CALM_SECONDS)
        for process in self.processes:
            process.wire.crash_at = 0
        await asyncio.gather(*tasks)
        before = await read_books(self.disk.look())
        self.wrong += await until_at_rest(self)
        invoker.cancel()
        for plane in planes:
            plane.cancel()
        for process in self.serving:
            process.crash()
        await self.world.quiet()
        roll = await call_the_roll(
            self.disk.look(), self.world, self.fakes, plans=PLANS,
            acknowledged=self.client.acknowledged,
        )  # fmt: skip
        self.wrong += violations(roll) + journal_only_grew(before, roll.books)
        self.wrong += self._quota(roll)
        for name, row in roll.books.operations.items():
            self.world.trace.add(name, row["state"], row["revision"], row["updated_at"])
        trace, count = self.world.trace.hexdigest(), len(roll.books.operations)
        return Lived(loop.seed, list(dict.fromkeys(self.wrong)), trace, count, self.invoked)

    def _death(self) -> dict[str, object]:
        if self.rng.randint(*self.mix.deaths) == 0:
            return {}
        side = self.rng.choice((Side.BEFORE, Side.DURING, Side.AFTER))
        return {"crash_at": self.rng.randint(10, 150), "side": side}

    def _quota(self, roll: Roll) -> list[str]:
        used, most = len(roll.reserved), self.mix.quota
        over = most is not None and used > most
        return [f"quota_is_kept: {used} places of {most} are taken"] if over else []

    async def _wish(self, number: int, wish: Wish) -> None:
        """Ask until there is an answer, and perhaps take it back."""
        await asyncio.sleep(wish.at)
        act, name = wish.act, wish.act.name
        opens = act.verb in {Verb.RESUME, Verb.CREATE}
        if opens:
            self.closed.pop(name, None)
        asked = Asked(idempotency_key=f"wish {number}", queue=wish.queue)
        try:
            accepted = await self.client.ask(lambda plane: ask(plane, act, asked=asked))
        except CallerError:
            return
        self.client.acknowledged.append(accepted.id)
        if act.verb in CLOSING:
            row = await self.disk.look().find("operation", (accepted.id,))
            newest = await self.disk.look().find("agent", (accepted.agent,))
            assert row is not None
            assert newest is not None
            faster = row["generation"] != newest["generation"]
            if not faster and "queued" not in str(row["input"]):
                self.closed[name] = (accepted.id, self.loop.time())
        if wish.cancel_after is not None:
            await asyncio.sleep(wish.cancel_after)
            with suppress(CallerError):
                await self.client.ask(
                    lambda plane: operations.cancel(plane, by("a caller"), accepted.id)
                )

    async def _invoke(self) -> None:
        """Ask where agents are reached; after a close that was acknowledged nobody may be told."""
        while True:
            await asyncio.sleep(INVOKE_SECONDS)
            for name in self.mix.names:
                before = self.closed.get(name)
                with suppress(CallerError, CommitUnknown):
                    await self.client.ask(
                        lambda plane, name=name: invocations.address_of(plane, CALLER, name)  # type: ignore[misc]
                    )
                    self.invoked += 1
                    if before is not None and self.closed.get(name) == before:
                        await self._let_through(name, before[0])

    async def _let_through(self, name: str, operation: str) -> None:
        """An invocation was let through though the agent was closed; unless that was taken back."""
        row = await self.disk.look().find("operation", (operation,))
        taken = await self.disk.look().find("agent_name", (TENANT, name))
        if row is None or row["state"] == OperationState.COMPENSATED:
            return
        if taken is None or taken["agent"] != row["agent"]:
            return  # another agent has the name by now
        agent = await self.disk.look().find("agent", (str(row["agent"]),))
        if agent is None or agent["generation"] != row["generation"]:
            return  # somebody has asked for something else since
        self.wrong.append(f"closed_serves_nothing: {name} was reached after {row['kind']!s}")


def live(seed: int, mix: Mix = MIXES["agents"]) -> Lived:
    """Live the life of this seed; what breaks the harness itself is wrong too."""

    async def main(loop: SeededLoop) -> Lived:
        return await Simulation(loop, seed, mix).run()

    try:
        return run(seed, main)
    except (Exception, CommitUnknown) as error:  # noqa: BLE001 (whatever it is, this seed failed)
        return Lived(seed, [f"no_surprise: {error!r}"], "", 0, 0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Live many seeds, say what failed and how to see it again."""
    parser = argparse.ArgumentParser(prog="lifecycle_life", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=500, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--mix", choices=sorted(MIXES), default="agents", help="what is likely")
    asked = parser.parse_args(arguments)
    began, failed, invoked = time.perf_counter(), 0, 0
    for seed in range(asked.first, asked.first + asked.seeds):
        lived = live(seed, MIXES[asked.mix])
        invoked += lived.invoked
        if lived.wrong:
            failed += 1
            print(f"seed {seed}, trace {lived.trace or 'none'}:")
            print("\n".join(f"    {wrong}" for wrong in lived.wrong[:5]))
    seconds = time.perf_counter() - began
    print(
        f"seeds={asked.seeds} failures={failed} invocations={invoked}"
        f" seeds_per_second={asked.seeds / seconds:.0f}"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
