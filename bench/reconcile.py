"""Reconcilers at size: a whole look at 100,000 agents, what it costs others, a cascade of 10,000.

The homes are written row by row beforehand, in a process of their own; what is measured runs on the
real store and the real embedded providers, but for a runtime that only remembers. Prints one line
of JSON.

usage: python bench/reconcile.py [--agents 100000] [--nodes 10000] [--patience 600]
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import apsw
import uvloop

from tenure.app.agents import commands as agents
from tenure.app.operations import admission, reads
from tenure.app.operations.admission import OperationRequest
from tenure.core.endings import Done
from tenure.core.ids import resource_key
from tenure.core.plan import Plan, Step, nothing, repeat
from tenure.core.records import AgentNameRecord
from tenure.core.roles import Caller, Role
from tenure.plans.agents.create import PLAN as CREATE
from tenure.ports.provider import OwnedResource
from tenure.reconcilers import orphans
from tenure.settings import Settings
from tenure.wiring import run_agent_plane

sys.path.insert(0, str(Path(__file__).resolve().parent / "servers"))
from lifecycle import REFERENCE, Remembered
from meter import growth

SLOTS = ("identity", "access", "runtime", "credentials")
CALLER = Caller("default", "bench", Role.ADMIN)
RATE = 500
"""Operations asked for in a second while a reconciler looks."""
KINDS = ("alone", "again", "beside")
"""Of turns: without a look, without one once more, beside one."""
TURN_SECONDS, SETTLE_SECONDS = 0.5, 0.1
"""Of the load; between two turns nothing is counted."""
TURNS, TURNS_LEAST = 120, 40
"""Of each kind that are waited for, and that are counted whatever the machine did."""
OTHERS_MAX = 0.12
"""Share of the cores that others may take in a turn that counts."""
WARM_SECONDS = 3.0
TICKS = os.sysconf("SC_CLK_TCK")
MOMENT = struct.Struct("d")


def settings(home):
    return Settings(home=str(home), reconcile_seconds=1e6)


def key_of(uid, slot):
    return resource_key("local", tenant="default", agent=uid, generation=1, slot=slot, name=slot)


def insert(connection, table, rows):
    rows = list(rows)
    columns = list(rows[0])
    marks = ",".join("?" * len(columns))
    sql = f"INSERT INTO {table}({','.join(columns)}) VALUES({marks})"
    connection.execute("BEGIN")
    connection.executemany(sql, (tuple(row.values()) for row in rows))
    connection.execute("COMMIT")


async def begin(home):
    """An empty home, with every file and every plan."""
    async with run_agent_plane(settings(home), provider_overrides={"runtime": Remembered()}):
        pass


def fill(home, count, *, tree):
    """Write so many READY agents; with `tree` the first owns all the others, some way down."""
    asyncio.run(begin(home))
    uids = [f"{number:032x}" for number in range(1, count + 1)]
    store = apsw.Connection(str(home / "tenure.db"))
    rng = random.Random(1)
    owner = [None] + [uids[rng.randrange(max(0, n // 8), n // 2 + 1)] for n in range(count - 1)]
    spec = {"name": "a", "runtime": {"command": ["x"], "drain_seconds": 0}}
    kept = json.dumps({"spec": spec, "runtime": {"command": ["x"]}})
    given = json.dumps({"name": "a", "spec": spec, "runtime": {}, "principal": "bench"})
    told = {"tenant": "default", "created_at": 1.0, "updated_at": 1.0}
    insert(
        store,
        "agent",
        (
            {
                "uid": uid,
                "generation": 1,
                "name": f"a{n}",
                "state": "READY",
                "epoch": 1,
                "spec": kept,
                "serving": json.dumps(REFERENCE),
                "parent": owner[n] if tree else None,
                **told,
            }
            for n, uid in enumerate(uids)
        ),
    )
    insert(
        store,
        "agent_name",
        ({"tenant": "default", "name": f"a{n}", "agent": uid} for n, uid in enumerate(uids)),
    )
    insert(
        store,
        "operation",
        (
            {
                "id": uid,
                "principal": "bench",
                "kind": "create_agent",
                "plan": CREATE.digest,
                "agent": uid,
                "generation": 1,
                "state": "SUCCEEDED",
                "revision": 8,
                "token": 1,
                "worker": "w",
                "input": given,
                "ended_at": 1.0,
                **told,
            }
            for uid in uids
        ),
    )
    insert(
        store,
        "intent",
        (
            {
                "operation": uid,
                "step": slot,
                "tenant": "default",
                "slot": slot,
                "key": key_of(uid, slot).text,
                "state": "PRESENT",
                "token": 1,
                "attempts": 0,
            }
            for uid in uids
            for slot in SLOTS
        ),
    )
    if tree:
        insert(
            store,
            "edge",
            (
                {
                    "owner": owner[n],
                    "kind": "agent",
                    "target": uids[n],
                    "tenant": "default",
                    "on_delete": "revoke",
                    "at": 1.0,
                }
                for n in range(1, count)
            ),
        )
    store.close()
    for slot in SLOTS:
        if slot != "runtime":
            file = apsw.Connection(str(home / f"{slot}.db"))
            insert(
                file,
                "resource",
                (
                    {
                        "key": key_of(uid, slot).text,
                        "plane": "local",
                        "tenant": "default",
                        "agent": uid,
                        "generation": 1,
                        "slot": slot,
                        "name": slot,
                        "state": "PRESENT",
                        "revision": 1,
                        "spec": "{}",
                        "reference": "{}",
                        "since": 1.0,
                    }
                    for uid in uids
                ),
            )
            file.close()
    (home / "count").write_text(str(count))


class Kept(Remembered):
    """A runtime that remembers what was there before it began."""

    def __init__(self, home):
        super().__init__()
        count = int((home / "count").read_text())
        self._there = [key_of(f"{number:032x}", "runtime").text for number in range(1, count + 1)]

    async def list_owned(self, plane):
        for number, key in enumerate(self._there, 1):
            yield OwnedResource(key, f"{number:032x}", 1, 1.0)
            if number % 500 == 0:
                await asyncio.sleep(0)


async def step(_):
    return Done()


LOAD = Plan("load", stages=tuple(Step(f"step{n}", step, nothing, repeat) for n in range(4)))


def ring():
    """Say when an operation is asked for: each at a moment drawn from its own part of a second.

    So it is a clock that asks, and neither how busy the plane is nor a rhythm of its own.
    """
    rng, start = random.Random(2), time.perf_counter()
    for number in itertools.count():
        due = start + (number + rng.random()) / RATE
        time.sleep(max(0.0, due - time.perf_counter()))
        os.write(1, MOMENT.pack(time.perf_counter()))


def begin_ringing():
    return subprocess.Popen(part_of_this("--part", "ring"), stdout=subprocess.PIPE)


@asynccontextmanager
async def loaded(plane):
    """Operations at a steady rate meanwhile; (asked, ended) of each that has ended by now."""
    ended, loop = [], asyncio.get_running_loop()

    async def one(asked):
        made = await admission.accept(plane, OperationRequest("load"))
        await plane.engine.wait(made.id, 60.0)
        ended.append((asked, time.perf_counter()))

    bell = begin_ringing()
    rung = bell.stdout.fileno()
    try:
        async with asyncio.TaskGroup() as group:

            def heard():
                for (asked,) in MOMENT.iter_unpack(os.read(rung, 512 * MOMENT.size)):
                    group.create_task(one(asked))

            loop.add_reader(rung, heard)
            try:
                yield ended
            finally:
                loop.remove_reader(rung)
    finally:
        bell.kill()
        bell.communicate()


async def measure_look(home, *, patience=None):
    async with run_agent_plane(settings(home), provider_overrides={"runtime": Kept(home)}) as plane:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, cpu = time.perf_counter(), time.process_time()
        tick = await orphans.tick(plane)
        seconds = time.perf_counter() - began
        told = {
            "resources": tick.seen,
            "fixed": tick.fixed,
            "seconds": round(seconds, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "rss_before_mb": round(before / 1024, 1),
        }
        if patience is not None:
            told["load"] = await measure_load(plane, patience)
        return told


class Turn(NamedTuple):
    """A while under load: from when to when, and which share of the cores others took meanwhile."""

    began: float
    ended: float
    others: float


async def measure_load(plane, patience):
    """The same load without a look and beside one, which is held between two of its parts.

    Turns are short and many. Each round has one without, one more without (what those two differ by
    is noise) and one beside, in every order equally often. A turn counts if the machine was ours.
    """
    plane.catalogue.register(LOAD)
    gate, list_living = asyncio.Event(), plane.store.list_living

    async def when_open(slot, owners, *, gone):
        await gate.wait()
        return await list_living(slot, owners, gone=gone)

    plane.store.list_living = when_open
    turns = {kind: [] for kind in KINDS}
    async with loaded(plane) as ended:
        await asyncio.sleep(WARM_SECONDS)
        looks = asyncio.ensure_future(look_again_and_again(plane))
        orders = itertools.cycle(itertools.permutations(KINDS))
        until = time.perf_counter() + patience
        while min(map(quiet, turns.values())) < TURNS and time.perf_counter() < until:
            for kind in next(orders):
                gate.set() if kind == "beside" else gate.clear()
                turns[kind].append(await turn())
        looks.cancel()
        await asyncio.gather(looks, return_exceptions=True)
        gate.set()
        began = time.perf_counter()
        await orphans.tick(plane)
        seconds = time.perf_counter() - began
    return {"look_seconds_beside": round(seconds, 1)} | compared(turns, ended)


async def turn():
    busy = busy_seconds()
    entered = time.perf_counter()
    await asyncio.sleep(SETTLE_SECONDS)
    began = time.perf_counter()
    await asyncio.sleep(TURN_SECONDS)
    ended = time.perf_counter()
    others = (busy_seconds() - busy) / (ended - entered) / os.cpu_count()
    return Turn(began, ended, others)


def busy_seconds():
    """CPU time that everybody but this process has used."""
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + sum(rest)) / TICKS - time.process_time()


def quiet(turns):
    return sum(turn.others <= OTHERS_MAX for turn in turns)


def compared(turns, ended):
    """What the kinds of turns came to, and how they differ."""
    took, done, found = {}, {}, {"turn_seconds": TURN_SECONDS}
    for kind, every in turns.items():
        # On a machine that was never quiet the least disturbed are told, and so is how much.
        counted = sorted(every, key=lambda turn: turn.others)[: max(quiet(every), TURNS_LEAST)]
        took[kind] = [
            [end - asked for asked, end in ended if turn.began <= asked < turn.ended]
            for turn in counted
        ]
        done[kind] = statistics.median(
            sum(turn.began <= end < turn.ended for _, end in ended) / (turn.ended - turn.began)
            for turn in counted
        )
        cuts = statistics.quantiles(itertools.chain(*took[kind]), n=100)
        found[kind] = {
            "turns": len(counted),
            "turns_left_out": len(every) - len(counted),
            "others_share": round(statistics.median(turn.others for turn in counted), 3),
            "rate": round(done[kind], 1),
        } | {f"p{n}_ms": round(cuts[n - 1] * 1e3, 2) for n in (50, 95, 99)}
    found["rate_lost"] = round(1 - done["beside"] / done["alone"], 4)
    found["p95_slower"] = round(found["beside"]["p95_ms"] / found["alone"]["p95_ms"] - 1, 3)
    for name, kind in (("p50_slower", "beside"), ("control", "again")):
        found |= growth(name, took["alone"], took[kind], median_of_all)
    return found


def median_of_all(turns):
    return statistics.median(itertools.chain(*turns))


async def look_again_and_again(plane):
    while True:
        await orphans.tick(plane)


async def measure_cascade(home, nodes):
    async with run_agent_plane(settings(home), provider_overrides={"runtime": Kept(home)}) as plane:
        began, cpu = time.perf_counter(), time.process_time()
        deleted = await agents.delete_agent(plane, CALLER, "a0", drain_seconds=0.0)
        accepted = time.perf_counter() - began
        ended = await reads.wait(plane, "default", deleted.id, seconds=600)
        seconds = time.perf_counter() - began
        left = await plane.store.count_rows(AgentNameRecord, {"tenant": "default"})
        held = 0
        for slot in ("identity", "access", "credentials"):
            async for _ in plane.providers[slot].list_owned("local"):
                held += 1
        return {
            "nodes": nodes,
            "state": ended.state,
            "seconds": round(seconds, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "accepted_ms": round(accepted * 1e3, 1),
            "agents_left": left,
            "resources_left": held,
        }


def alone(*arguments):
    """A part of this in a process of its own, so that memory is its own; what it printed."""
    done = subprocess.run(part_of_this(*arguments), check=True, capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout else None


def part_of_this(*arguments):
    return [sys.executable, __file__, *map(str, arguments)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--patience", type=float, default=600.0, help="seconds, for quiet turns")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    match asked.part:
        case "ring":
            ring()
        case "fill" | "tree":
            fill(asked.home, asked.agents, tree=asked.part == "tree")
        case "half":
            print(json.dumps(uvloop.run(measure_look(asked.home))))
        case "look":
            told = uvloop.run(measure_look(asked.home, patience=asked.patience))
            print(json.dumps(told))
        case "cascade":
            print(json.dumps(uvloop.run(measure_cascade(asked.home, asked.nodes))))
        case _:
            with tempfile.TemporaryDirectory(prefix="tenure-bench-") as name:
                print(json.dumps(run(Path(name), asked)))


def run(place, asked):
    half, whole, tree = place / "half", place / "whole", place / "tree"
    alone("--part", "fill", "--home", half, "--agents", asked.agents // 2)
    alone("--part", "fill", "--home", whole, "--agents", asked.agents)
    alone("--part", "tree", "--home", tree, "--agents", asked.nodes)
    first = alone("--part", "half", "--home", half)
    looked = alone("--part", "look", "--home", whole, "--patience", asked.patience)
    return {
        "bench": "reconcile",
        "half": first,
        "look": looked,
        "linear": round(looked["seconds"] / first["seconds"] / 2, 2),
        "pass_seconds_beside_load": looked["load"]["look_seconds_beside"],
        "cascade": alone("--part", "cascade", "--home", tree, "--nodes", asked.nodes),
    }


if __name__ == "__main__":
    main()
