"""The proof that events get out (P17): a relay that dies at every crossing, and its safeguards.

Agents live on one plane; a relay carries their events from a process of its own that is killed at
one crossing, of the store or of the bus, and followed by another.  What counts is what arrived in
the receiver's own world: every committed event, the first copies of each agent in order, each under
one id, and nothing that was not committed when it arrived.

`LOST` faults of the receiver are drawn from the seed: it says no to one agent for a while, or takes
nothing at all.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, cast

from proofs.agents.crash import until_at_rest
from proofs.agents.lifecycle import CALLER, LifeRig, spec_of
from proofs.harness.rig import Process
from proofs.operations.ablations import PROVED, Ablation, by_name
from tenure.adapters.bus.local import LocalBus
from tenure.app.agents import commands as agents
from tenure.app.events import cloudevents as app_events
from tenure.core.errors import Invalid
from tenure.core.events import event_id
from tenure.delivery import outbox
from tenure.delivery.outbox import DestinationRoute, Lanes, SendResult
from tenure.delivery.relay import Relay
from tenure.ports.bus import Destination, Outgoing
from tenure.ports.store import Change, Row, Set, Store
from tenure.testing.loop import Dead, Deadlock, SeededLoop, run
from tenure.testing.patches import patched
from tenure.testing.tripwire import Side

SINK = "sink"
SEEDS = 60
CROSSINGS = 90
PATIENCE_SECONDS = 7_200.0
"""Virtual: within which everything must have arrived."""
AGAIN = "python -m proofs.prove 17"
Cases = Iterator[tuple[str, list[str]]]


class Receiver:
    """A consumer in a world of its own: it knows only what it is sent."""

    def __init__(self, loop: SeededLoop, disk: Callable[[], Store], *, seed: int) -> None:
        """Nothing has arrived."""
        self.arrived: list[Outgoing] = []
        self.wrong: list[str] = []
        self._loop = loop
        self._disk = disk
        self._seed = seed

    async def take(self, event: Outgoing) -> None:
        """Take it, unless it is one of those times."""
        time = self._loop.time()
        if self._seed % 3 == 1 and time < 40.0 and int(event.agent[-4:], 16) % 2:
            raise Invalid("not of this one, now")
        if self._seed % 3 == 2 and 5.0 < time < 30.0:
            raise ConnectionError("nobody is there")
        position = int(event.id.partition("-")[0])
        if await self._disk().find("outbox", (position,)) is None:
            self.wrong.append(f"uncommitted: {event.id} arrived before it was committed")
        self.arrived.append(event)


async def _life(loop: SeededLoop, *, seed: int, crossing: int, side: Side) -> list[str]:
    """What was wrong with how the events of a few lives got out."""
    rig = LifeRig(loop)
    process = rig.boot("plane")
    await process.start()
    rig.serving.append(process)
    receiver = Receiver(loop, rig.disk.look, seed=seed)
    supervisor = loop.create_task(_supervise(rig, receiver, crossing=crossing, side=side))
    plane = process.plane
    for name in ("alpha", "beta", "gamma"):
        await agents.create_agent(plane, CALLER, spec_of(name))
    await until_at_rest(rig)
    await agents.suspend_agent(plane, CALLER, "alpha")
    await agents.delete_agent(plane, CALLER, "beta")
    await until_at_rest(rig)
    await agents.resume_agent(plane, CALLER, "alpha")
    await until_at_rest(rig)
    store = rig.disk.look()
    rows = list(await store.list_events(limit=10_000))
    until = loop.time() + PATIENCE_SECONDS
    while loop.time() < until and not await _is_done(store, rows):  # noqa: ASYNC110 (no event)
        await asyncio.sleep(1.0)  # in virtual time
    supervisor.cancel()
    return receiver.wrong + judged(receiver.arrived, rows)


async def _is_done(store: Store, rows: list[Row]) -> bool:
    cursor = await store.find("cursor", (SINK,))
    parked = await store.count_rows("parked", {})
    return cursor is not None and cursor["position"] == rows[-1]["position"] and not parked


def judged(arrived: list[Outgoing], rows: list[Row]) -> list[str]:
    """Every sentence of the promise that does not hold."""
    wrong: list[str] = []
    committed = {(str(row["agent"]), cast(int, row["sequence"])) for row in rows}
    first: dict[tuple[str, int], str] = {}
    last: dict[str, int] = {}
    for event in arrived:
        what = (event.agent, event.sequence)
        known = first.setdefault(what, event.id)
        if known != event.id:
            wrong.append(f"id: event {what} came as {known} and as {event.id}: applied twice")
        if event.sequence > last.get(event.agent, 0) + 1:
            wrong.append(f"order: {what} came after {last.get(event.agent, 0)}")
        last[event.agent] = max(last.get(event.agent, 0), event.sequence)
    wrong += [f"missing: {what} never arrived" for what in sorted(committed - set(first))]
    wrong += [f"invented: {what} was never committed" for what in sorted(set(first) - committed)]
    return wrong


async def _supervise(rig: LifeRig, receiver: Receiver, *, crossing: int, side: Side) -> None:
    """One relay after the other; the first dies at its crossing."""
    for number in itertools.count():
        dies = {"crash_at": crossing, "side": side} if number == 0 else {}
        process = rig.boot(f"relay {number}", **dies)  # type: ignore[arg-type]
        try:
            await process.node.run(_relay(process, receiver).run())
        except Dead:
            process.crash()
            continue
        return


def _relay(process: Process, receiver: Receiver) -> Relay:
    async def take(event: Outgoing) -> None:
        await process.wire.cross("bus.publish", lambda: receiver.take(event))

    bus = LocalBus({SINK: take})
    return Relay(process.plane, buses={}, always=[DestinationRoute(Destination(SINK, SINK), bus)])


def getting_out() -> Cases:
    """Relays that die before and after every crossing, and receivers that are not always there."""
    for crossing, side in itertools.product(range(1, CROSSINGS), (Side.BEFORE, Side.AFTER)):
        seed = crossing % 7
        wrong = _lived(seed, partial(_life, seed=0, crossing=crossing, side=side))
        yield f"{AGAIN} (death {side} crossing {crossing})", wrong
    for seed in range(SEEDS):
        crossing = seed * 7 % 113 if seed % 2 else 0
        wrong = _lived(seed, partial(_life, seed=seed, crossing=crossing, side=Side.AFTER))
        yield f"{AGAIN} (seed {seed})", wrong


def _lived(seed: int, life: Callable[[SeededLoop], Coroutine[Any, Any, list[str]]]) -> list[str]:
    """What was wrong; that a relay went round for ever is."""
    try:
        return run(seed, life)
    except Deadlock as error:
        return [f"unending: {error}"]


# --- without its safeguards -----------------------------------------------------------------------

_send = outbox._send  # noqa: SLF001 (what is switched off)


def marked_first() -> AbstractContextManager[None]:
    """Move the cursor, then publish."""

    async def send(plane: Any, route: DestinationRoute, rows: Any) -> SendResult:
        if rows and "parked" not in rows[0] and "destination" not in rows[0]:
            there = Set("cursor", (route.id,), {"position": rows[-1]["position"]})
            await plane.store.commit(Change("", (), (there,)))
        return await _send(plane, route, rows)

    return patched(outbox, _send=send)


def newest_first() -> AbstractContextManager[None]:
    """Send whatever of an agent, its newest event first."""

    def heads(lanes: Lanes) -> list[Row]:
        return [lane[-1] for lane in lanes.values()]

    return patched(outbox, next_of_each_agent=heads)


def ids_drawn() -> AbstractContextManager[None]:
    """Give an event another id each time it is told."""
    numbers = itertools.count()

    def drawn(position: int, agent: str, sequence: int | None, at: float) -> str:
        return f"{event_id(position, agent, sequence, at)}-{next(numbers)}"

    return patched(app_events, event_id=drawn)


def parked_forgotten() -> AbstractContextManager[None]:
    """Send an agent's next event although an earlier one of it is a dead letter."""

    async def none(_plane: Any, _route: DestinationRoute) -> list[Row]:
        return []

    async def never(
        _plane: Any, _leader: Any, _route: DestinationRoute, _now: float
    ) -> outbox.DeliveryResult:
        return outbox.DeliveryResult()

    return patched(outbox, _list_parked=none, _retry_parked=never)


ABLATIONS = by_name((
    Ablation(
        "published_before_marked",
        "A cursor moves only after what lies before it was published.",
        "S21", (17,), PROVED, marked_first,
    ),
    Ablation(
        "one_of_an_agent_at_a_time",
        "An agent's next event leaves after the receipt of the one before.",
        "S21", (17,), PROVED, newest_first,
    ),
    Ablation(
        "stable_event_id",
        "An event has one id, by which a consumer tells a copy.",
        "S21", (17,), PROVED, ids_drawn,
    ),
    Ablation(
        "letters_go_first",
        "What comes after a dead letter of an agent waits behind it.",
        "S21", (17,), PROVED, parked_forgotten,
    ),
))  # fmt: skip
"""Every safeguard of events that can be switched off, by name."""
