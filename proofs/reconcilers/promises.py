"""The promises about reconcilers: no orphans (P3), no false deletion (P4).

P3 is the simulation in which reactions are lost, and every reconciler disturbed in three ways
(`proofs.reconcilers.disturbances`).  P4 is what a reconciler must not believe: an empty store, one
of yesterday, a list that was made while something was created, a leader that was deposed, far too
many orphans at once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from proofs.harness.cluster import PLANE
from proofs.harness.subject import Check, Checks, Proof, Subject
from proofs.reconcilers import disturbances
from proofs.reconcilers.ablations import ABLATIONS
from proofs.reconcilers.scenarios import LONG, PROVE, Stage
from proofs.reconcilers.workload import ReconcilersSimulation
from tenure.app.leader import Leader
from tenure.core.ids import resource_key
from tenure.reconcilers import orphans
from tenure.reconcilers.passes import LEADERS, Pass
from tenure.testing.faults import Fault, FaultPoint
from tenure.testing.loop import EPOCH, SeededLoop, run

SEEDS = 3


async def created_meanwhile(stage: Stage) -> list[str]:
    """What is created while a provider lists is in the store by the time that is asked."""
    for slot in ("identity", "access", "runtime", "credentials"):
        stage.faults.script[FaultPoint(slot, "list_owned", 1)] = Fault.SLOW
    looking = asyncio.ensure_future(orphans.tick(stage.plane))
    await asyncio.sleep(0.5 * stage.loop.random.random())
    await stage.make("alpha", "beta")
    await looking
    return [f"a living resource was suspected: {what}" for what in await stage.finding_texts()]


async def empty_store(stage: Stage) -> list[str]:
    """A store without rows, a world full of agents."""
    await stage.make("alpha", "beta", "gamma")
    before = sorted(stage.world.things)
    disk: Any = stage.disk
    for table in ("agent", "agent_name", "operation", "intent", "journal", "tombstone"):
        stage.rows(table).clear()
    for part in disk.tables._parts.values():  # noqa: SLF001
        part.clear()
    await stage.run_passes()
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
    await stage.run_passes(5)
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
    await stage.run_passes()
    same = sorted(stage.world.things) == before
    wrong = [] if same else ["what is not ours to judge was deleted"]
    if len(await stage.finding_texts()) != 2:
        wrong.append(f"reported was {await stage.finding_texts()}")
    return wrong


async def leader_that_was_replaced(stage: Stage) -> list[str]:
    """A leader that slept longer than its lease goes on where it was."""
    await stage.make("alpha")
    thing = await stage.leave("gone")
    first, second = (Leader(stage.plane, LEADERS, ttl_seconds=15.0) for _ in range(2))
    await first.renew()
    this_pass = Pass(stage.plane, "orphans", token=first.token)
    await orphans.tick(stage.plane, this_pass=this_pass)
    await asyncio.sleep(LONG)
    await second.renew()
    await orphans.tick(stage.plane, this_pass=this_pass)
    there = ("runtime", thing.key.text) in stage.world.things
    return [] if there else ["a deposed leader has deleted something"]


async def too_many(stage: Stage) -> list[str]:
    """More orphans at once than can be true."""
    things = [await stage.leave(f"gone-{number}") for number in range(6)]
    await stage.run_passes()
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
    await stage.run_passes(3, orphans.APART_SECONDS + 1)
    there = ("runtime", thing.key.text) in stage.world.things
    return [] if there else ["it was deleted before its grace was over"]


async def paused_plane(stage: Stage) -> list[str]:
    """While a plane is paused after a restore, its reconcilers change nothing."""
    await stage.make("alpha")
    thing = await stage.leave("gone")
    for _ in range(3):
        this_pass = Pass(stage.plane, "orphans", read_only=True)
        await stage.run_passes(1, this_pass=this_pass)
    there = ("runtime", thing.key.text) in stage.world.things
    return [] if there else ["a paused plane has deleted something"]


FALSE: tuple[Callable[[Stage], Awaitable[list[str]]], ...] = (
    created_meanwhile,
    empty_store,
    yesterday,
    unknown,
    leader_that_was_replaced,
    too_many,
    one_look,
    young,
    paused_plane,
)


def false_deletions() -> Checks:
    """Everything that must not be believed."""
    for check in FALSE:
        for seed in range(SEEDS):
            again = f"{PROVE} 4 ({check.__name__}, seed {seed})"
            yield Check(again, run(seed, lambda loop, check=check: _run_on_stage(loop, check)))  # type: ignore[misc]


async def _run_on_stage(
    loop: SeededLoop, check: Callable[[Stage], Awaitable[list[str]]]
) -> list[str]:
    stage = Stage(loop)
    await stage.begin()
    return await check(stage)


def disturbed_passes() -> Checks:
    """Every reconciler disturbed in every way."""
    yield from disturbances.disturbance_checks()


SUBJECT = Subject(
    "reconcilers",
    (
        Proof(3, ("lost_reactions",), checks=disturbed_passes),
        Proof(4, checks=false_deletions),
    ),
    ABLATIONS,
    ReconcilersSimulation,
    seeds=100,
)
