"""The proofs of P3 and P4: what is nobody's goes, and nothing else does.

P3 is lives in which reactions are lost (`proofs.reconcilers.life`), and every reconciler led astray
in three ways (`proofs.reconcilers.perturbations`).  P4 is what a reconciler must not believe: an
empty store, one of yesterday, a list that was made while something was created, a leader that was
deposed, far too many orphans at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from proofs.agents.lifecycle import CALLER, LifeRig, spec_of
from proofs.harness.rig import PLANE, Process
from proofs.operations.ablations import Ablation, by_name
from proofs.reconcilers.life import off
from tenure.app.agents import commands as agents
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.core.ids import resource_key
from tenure.ports.provider import Provider
from tenure.reconcilers import orphans, retention
from tenure.reconcilers.driver import RECONCILERS
from tenure.reconcilers.leader import Leader
from tenure.reconcilers.term import LEADERS, Term
from tenure.testing.fakes import Thing
from tenure.testing.faults import Call, Fault
from tenure.testing.loop import EPOCH, SeededLoop, run
from tenure.testing.patches import patched

LONG = orphans.GRACE_SECONDS + 1
SEEDS = 3
PROVE = "python -m proofs.prove"
Cases = Iterator[tuple[str, list[str]]]


class Stage(LifeRig):
    """One world with one plane that is asked from inside."""

    plane: Plane

    async def begin(self, name: str = "plane") -> Process:
        """Start a plane."""
        process = self.boot(name)
        await process.start()
        self.plane = process.plane
        return process

    async def make(self, *names: str, **given: object) -> list[str]:
        """Agents that are READY; their uids."""
        made = [
            await agents.create_agent(self.plane, CALLER, spec_of(name, **given)) for name in names
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

    async def look(self, times: int = 4, seconds: float = LONG, **given: Any) -> None:
        """Let orphans be looked for, again and again."""
        for _ in range(times):
            await orphans.tick(self.plane, **given)
            await asyncio.sleep(seconds)

    async def seen(self) -> list[str]:
        """What is open, in words."""
        found = await findings.list_findings(self.plane, CALLER)
        return [str(one.body["what"]) for one in found]


# --- P4: nothing else goes ------------------------------------------------------------------------


async def created_meanwhile(stage: Stage) -> list[str]:
    """What is created while a provider lists is in the store by the time that is asked."""
    for slot in ("identity", "access", "runtime", "credentials"):
        stage.faults.script[Call(slot, "list_owned", 1)] = Fault.SLOW
    looking = asyncio.ensure_future(orphans.tick(stage.plane))
    await asyncio.sleep(0.5 * stage.loop.random.random())
    await stage.make("alpha", "beta")
    await looking
    return [f"a living resource was suspected: {what}" for what in await stage.seen()]


async def empty_store(stage: Stage) -> list[str]:
    """A store without rows, a world full of agents."""
    await stage.make("alpha", "beta", "gamma")
    before = sorted(stage.world.things)
    disk: Any = stage.disk
    for table in ("agent", "agent_name", "operation", "intent", "journal", "tombstone"):
        stage.rows(table).clear()
    for part in disk.tables._parts.values():  # noqa: SLF001
        part.clear()
    await stage.look()
    return [] if sorted(stage.world.things) == before else ["an empty store has deleted something"]


async def yesterday(stage: Stage) -> list[str]:
    """The world went on after the copy was made that is the store now."""
    await stage.make("alpha", "beta", "gone")
    await stage.verb("suspend", "beta")
    disk: Any = stage.disk
    copy = disk.tables.dump()
    await stage.make("new")
    await stage.verb("resume", "beta")
    await stage.verb("delete", "gone")
    before = sorted(stage.world.things)
    old = type(disk.tables).read(copy)
    for name in ("rows", "_parts"):
        mine = getattr(disk.tables, name)
        mine.clear()
        mine.update(getattr(old, name))
    await stage.look(5)
    return [] if sorted(stage.world.things) == before else ["yesterday's store deleted something"]


async def unknown(stage: Stage) -> list[str]:
    """Our label on what our records never heard of, on what is newer, and another's label."""
    (uid,) = await stage.make("alpha")
    for agent, generation, owner in (
        ("f" * 32, 1, PLANE), (uid, 9, PLANE), ("e" * 32, 1, "another"),
    ):  # fmt: skip
        key = resource_key(
            PLANE, tenant="default", agent=agent, generation=generation, slot="runtime", name="x"
        )
        stage.world.plant("runtime", key, owner=owner)
        stage.world.things["runtime", key.text].key = key
    before = sorted(stage.world.things)
    await stage.look()
    same = sorted(stage.world.things) == before
    wrong = [] if same else ["what is not ours to judge was deleted"]
    if len(await stage.seen()) != 2:
        wrong.append(f"reported was {await stage.seen()}")
    return wrong


async def deposed(stage: Stage) -> list[str]:
    """A leader that slept longer than its lease goes on where it was."""
    await stage.make("alpha")
    thing = await stage.leave("gone")
    first, second = (Leader(stage.plane, LEADERS, ttl_seconds=15.0) for _ in range(2))
    await first.renew()
    term = Term(stage.plane, "orphans", token=first.token)
    await orphans.tick(stage.plane, term=term)
    await asyncio.sleep(LONG)
    await second.renew()
    await orphans.tick(stage.plane, term=term)
    there = ("runtime", thing.key.text) in stage.world.things
    return [] if there else ["a deposed leader has deleted something"]


async def too_many(stage: Stage) -> list[str]:
    """More orphans at once than can be true."""
    things = [await stage.leave(f"gone-{number}") for number in range(6)]
    await stage.look()
    left = sum(("runtime", thing.key.text) in stage.world.things for thing in things)
    return [] if left == len(things) else [f"{len(things) - left} of too many were deleted"]


async def one_look(stage: Stage) -> list[str]:
    """However old it is, one sighting is not enough."""
    await stage.make("alpha")
    thing = await stage.leave("gone")
    await asyncio.sleep(LONG)
    await orphans.tick(stage.plane)
    there = ("runtime", thing.key.text) in stage.world.things
    return [] if there else ["it was deleted at first sight"]


async def young(stage: Stage) -> list[str]:
    """What has only just been made may be a call that is still under way."""
    await stage.make("alpha")
    thing = await stage.leave("gone")
    thing.since = EPOCH + stage.loop.time()
    await stage.look(3, orphans.APART_SECONDS + 1)
    there = ("runtime", thing.key.text) in stage.world.things
    return [] if there else ["it was deleted before its grace was over"]


async def held(stage: Stage) -> list[str]:
    """A plane that was restored looks and touches nothing."""
    await stage.make("alpha")
    thing = await stage.leave("gone")
    for _ in range(3):
        term = Term(stage.plane, "orphans", read_only=True)
        await stage.look(1, term=term)
    there = ("runtime", thing.key.text) in stage.world.things
    return [] if there else ["a plane that is held has deleted something"]


FALSE: tuple[Callable[[Stage], Awaitable[list[str]]], ...] = (
    created_meanwhile, empty_store, yesterday, unknown, deposed, too_many, one_look, young, held,
)  # fmt: skip


def false_deletions() -> Cases:
    """Everything that must not be believed."""
    for check in FALSE:
        for seed in range(SEEDS):
            again = f"{PROVE} 4 ({check.__name__}, seed {seed})"
            yield again, run(seed, lambda loop, check=check: _staged(loop, check))  # type: ignore[misc]


async def _staged(loop: SeededLoop, check: Callable[[Stage], Awaitable[list[str]]]) -> list[str]:
    stage = Stage(loop)
    await stage.begin()
    return await check(stage)


# --- the safeguards -------------------------------------------------------------------------------


class Earlier(NamedTuple):
    """A plane, and a store that says what it said before."""

    plane: Plane
    store: Any


class Then(NamedTuple):
    """What a store said of who lives."""

    keys: frozenset[str]

    async def list_living(self, *_: object) -> frozenset[str]:
        """The same whatever was created since."""
        return self.keys


def store_first() -> AbstractContextManager[None]:
    """Ask the store before the provider."""

    async def compare(plane: Plane, _: Term, slot: str, provider: Provider, done: Any) -> None:
        rows = await plane.store.list_rows("intent", {"slot": slot}, limit=1_000)
        then: Any = Earlier(plane, Then(frozenset(str(row["key"]) for row in rows)))
        listed = [one async for one in provider.list_owned(plane.id)]
        await orphans._claims(then, slot, listed, done)  # noqa: SLF001

    async def judge(_: Plane, suspect: orphans.Suspect) -> orphans.Judged:
        return orphans.Judged(suspect, orphans.Verdict.UNKNOWN, "the store did not know it then")

    return patched(orphans, _compare=compare, judge=judge)


_TABLE = (
    Ablation(
        "provider_first",
        "The provider is listed before the store is asked.",
        "S8", (4,), "proof", store_first,
    ),
    Ablation(
        "leader_fenced",
        "The commit that intends a deletion guards the leader's token.",
        "S6 S8", (4,), "proof", lambda: patched(Term, fence=lambda _: ()),
    ),
    Ablation(
        "seen_twice",
        "An orphan is removed at the second sighting, some time after the first.",
        "S8", (4,), "proof", lambda: patched(orphans, SIGHTINGS=1, APART_SECONDS=0.0),
    ),
    Ablation(
        "grace",
        "What is young is left alone.",
        "S8", (4,), "proof", lambda: patched(orphans, GRACE_SECONDS=0.0),
    ),
    Ablation(
        "sweep_capped",
        "Too many orphans at once are believed by nobody.",
        "S9", (4,), "proof", lambda: patched(orphans, cap=lambda _: 1e9),
    ),
    Ablation(
        "held_is_known",
        "An operation is kept while anything that it made may be there.",
        "S10", (3,), "proof", lambda: patched(retention, may_hold=lambda _: False),
    ),
    *(
        Ablation(
            f"reconciler_{name}", f"The reconciler {name} looks.", "S4 S10", (3,), "proof",
            off(name),
        )
        for name in ("outbox", *RECONCILERS)
    ),
)  # fmt: skip
ABLATIONS = by_name(_TABLE)
"""Every safeguard of the reconcilers that can be switched off, by name."""
