"""Reconcilers at size: a whole look at 100,000 agents, what it costs others, a cascade of 10,000.

The homes are written row by row beforehand, in a process of their own; what is measured runs on the
real store and the real embedded providers, but for a runtime that only remembers. Prints one line
of JSON.

usage: python bench/reconcile.py [--agents 100000] [--nodes 10000]
"""

import argparse
import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw
import uvloop

from tenure.app import agents, operations
from tenure.app.operations import Accept
from tenure.core.endings import Done
from tenure.core.ids import resource_key
from tenure.core.plan import Plan, Step, nothing, repeat
from tenure.core.roles import Caller, Role
from tenure.plans.create_agent import PLAN as CREATE
from tenure.ports.provider import Owned
from tenure.reconcilers import orphans
from tenure.settings import Settings
from tenure.wiring import managing

sys.path.insert(0, str(Path(__file__).resolve().parent / "servers"))
from lifecycle import REFERENCE, Remembered

SLOTS = ("identity", "access", "runtime", "credentials")
CALLER = Caller("default", "bench", Role.ADMIN)
RATE = 500
"""Operations asked for in a second while a reconciler looks."""
TURN_SECONDS, PAIRS = 4.0, 12
"""Of the load, alone and beside looks."""


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
    async with managing(settings(home), instead={"runtime": Remembered()}):
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
    insert(store, "agent", (
        {"uid": uid, "generation": 1, "name": f"a{n}", "state": "READY", "epoch": 1, "spec": kept,
         "serving": json.dumps(REFERENCE), "parent": owner[n] if tree else None, **told}
        for n, uid in enumerate(uids)
    ))  # fmt: skip
    insert(store, "agent_name", (
        {"tenant": "default", "name": f"a{n}", "agent": uid} for n, uid in enumerate(uids)
    ))  # fmt: skip
    insert(store, "operation", (
        {"id": uid, "principal": "bench", "kind": "create_agent", "plan": CREATE.digest,
         "agent": uid, "generation": 1, "state": "SUCCEEDED", "revision": 8, "token": 1,
         "worker": "w", "input": given, "ended_at": 1.0, **told}
        for uid in uids
    ))  # fmt: skip
    insert(store, "intent", (
        {"operation": uid, "step": slot, "tenant": "default", "slot": slot,
         "key": key_of(uid, slot).text, "state": "PRESENT", "token": 1, "attempts": 0}
        for uid in uids for slot in SLOTS
    ))  # fmt: skip
    if tree:
        insert(store, "edge", (
            {"owner": owner[n], "kind": "agent", "target": uids[n], "tenant": "default",
             "on_delete": "revoke", "at": 1.0}
            for n in range(1, count)
        ))  # fmt: skip
    store.close()
    for slot in SLOTS:
        if slot != "runtime":
            file = apsw.Connection(str(home / f"{slot}.db"))
            insert(file, "resource", (
                {"key": key_of(uid, slot).text, "plane": "local", "tenant": "default",
                 "agent": uid, "generation": 1, "slot": slot, "name": slot, "state": "PRESENT",
                 "revision": 1, "spec": "{}", "reference": "{}", "since": 1.0}
                for uid in uids
            ))  # fmt: skip
            file.close()
    (home / "count").write_text(str(count))


class Kept(Remembered):
    """A runtime that remembers what was there before it began."""

    def __init__(self, home):
        super().__init__()
        self._there = int((home / "count").read_text())

    async def list_owned(self, plane):
        for number in range(1, self._there + 1):
            uid = f"{number:032x}"
            yield Owned(key_of(uid, "runtime").text, uid, 1, 1.0)
            if number % 500 == 0:
                await asyncio.sleep(0)


async def step(_):
    return Done()


LOAD = Plan(
    "load", stages=tuple(Step(f"step{n}", step, nothing, repeat) for n in range(4))
)


async def load(plane, seconds):
    """Ask for operations at a steady rate; how long each took, from asking to its end."""
    took, tasks = [], []

    async def one():
        began = time.perf_counter()
        made = await operations.accept(plane, Accept("load"))
        await plane.engine.wait(made.id, 60.0)
        took.append(time.perf_counter() - began)

    start, count = time.perf_counter(), 0
    while (now := time.perf_counter()) < start + seconds:
        while count < (now - start) * RATE:
            tasks.append(asyncio.ensure_future(one()))
            count += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    return {
        "rate": round(len(took) / (time.perf_counter() - start), 1),
        "p50_ms": round(statistics.median(took) * 1e3, 2),
        "p99_ms": round(statistics.quantiles(took, n=100)[98] * 1e3, 2),
    }


async def measure_look(home, *, beside):
    async with managing(settings(home), instead={"runtime": Kept(home)}) as plane:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began, cpu = time.perf_counter(), time.process_time()
        tick = await orphans.tick(plane)
        seconds = time.perf_counter() - began
        told = {
            "resources": tick.seen, "fixed": tick.fixed, "seconds": round(seconds, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "rss_before_mb": round(before / 1024, 1),
        }  # fmt: skip
        if beside:
            told["load"] = await measure_load(plane)
        return told


async def measure_load(plane):
    """The same load alone and beside looks, turn by turn, now one first and now the other.

    Ratios are formed within a pair of turns; told is their median, with its quarters.
    """
    plane.catalogue.register(LOAD)
    await load(plane, 2.0)
    alone, beside = [], []
    for pair in range(PAIRS):
        for beside_looks in (pair % 2 == 1, pair % 2 == 0):
            if not beside_looks:
                alone.append(await load(plane, TURN_SECONDS))
                continue
            looks = asyncio.ensure_future(look_again_and_again(plane))
            beside.append(await load(plane, TURN_SECONDS))
            looks.cancel()
            await asyncio.gather(looks, return_exceptions=True)
    names = ("rate", "p50_ms", "p99_ms")
    told = {"look_seconds_beside": await look_beside(plane)} | {
        kind: {name: statistics.median(turn[name] for turn in turns) for name in names}
        for kind, turns in (("alone", alone), ("beside", beside))
    }
    slower = quarters(alone, beside, "p50_ms")
    told["rate_lost"] = round(1 - quarters(alone, beside, "rate")[1], 4)
    told["p50_slower"] = round(slower[1] - 1, 3)
    told["p50_slower_quarters"] = [round(slower[0] - 1, 3), round(slower[2] - 1, 3)]
    return told


async def look_beside(plane):
    """How long one whole look takes beside the load."""

    async def look():
        began = time.perf_counter()
        await orphans.tick(plane)
        return round(time.perf_counter() - began, 1)

    looked = asyncio.ensure_future(look())
    while not looked.done():
        await load(plane, TURN_SECONDS)
    return await looked


def quarters(alone, beside, name):
    """Of the ratios within the pairs."""
    return statistics.quantiles(
        [one[name] / other[name] for one, other in zip(beside, alone, strict=True)], n=4
    )


async def look_again_and_again(plane):
    while True:
        await orphans.tick(plane)


async def measure_cascade(home, nodes):
    async with managing(settings(home), instead={"runtime": Kept(home)}) as plane:
        began, cpu = time.perf_counter(), time.process_time()
        deleted = await agents.delete_agent(plane, CALLER, "a0", drain_seconds=0.0)
        accepted = time.perf_counter() - began
        ended = await operations.wait(plane, "default", deleted.id, seconds=600)
        seconds = time.perf_counter() - began
        left = await plane.store.count_rows("agent_name", {"tenant": "default"})
        held = 0
        for slot in ("identity", "access", "credentials"):
            async for _ in plane.providers[slot].list_owned("local"):
                held += 1
        return {
            "nodes": nodes, "state": ended.state, "seconds": round(seconds, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "accepted_ms": round(accepted * 1e3, 1), "agents_left": left, "resources_left": held,
        }  # fmt: skip


def alone(*arguments):
    """A part of this in a process of its own, so that memory is its own; what it printed."""
    command = [sys.executable, __file__, *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout) if done.stdout else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    parser.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    match asked.part:
        case "fill" | "tree":
            fill(asked.home, asked.agents, tree=asked.part == "tree")
        case "look" | "half":
            told = uvloop.run(measure_look(asked.home, beside=asked.part == "look"))
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
    looked = alone("--part", "look", "--home", whole)
    return {
        "bench": "reconcile", "half": first, "look": looked,
        "linear": round(looked["seconds"] / first["seconds"] / 2, 2),
        "cascade": alone("--part", "cascade", "--home", tree, "--nodes", asked.nodes),
    }  # fmt: skip


if __name__ == "__main__":
    main()
