"""Makes tests/real/histories/*.json: one run on a real server for each way a run can end.

They are made once and kept: runs of an earlier release must replay under every later one.  Make new
ones only beside the old ones: `python -m tests.real.temporal.histories NAME` writes NAME-*.json.
"""

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tenure.app.operations import commands as operations
from tenure.app.operations import reads
from tenure.app.plane import Plane
from tenure.core.operation import OperationState
from tenure.testing.contracts.engine import TENANT, accept, wait_for_end
from tenure.testing.faults import Delays, Fault, FaultPoint
from tenure.testing.operators import by
from tenure.testing.plans import SIGNAL
from tenure.testing.temporal_server import temporal_server
from tests.real.support.temporal_planes import TemporalBench, engine_of, eventually, run_on_temporal

STICKY = re.compile(r"^\d+@\S+-[0-9a-f]{32}$")
"""A worker's own queue: its process and machine."""
PLACE = Path(__file__).parent / "histories"


async def waiting(plane: Plane) -> str:
    """An operation that waits for a signal."""
    name = await accept(plane, "waits")

    async def waits() -> bool:
        return (await reads.get_operation(plane, TENANT, name)).state is OperationState.WAITING

    await eventually(waits)
    return name


async def make(bench: TemporalBench) -> dict[str, tuple[Plane, str]]:
    """An operation of each kind; all have ended, or are stuck."""
    plane = await bench.start()
    made = {"succeeded": await accept(plane, "linear"), "parallel": await accept(plane, "parallel")}
    for name in made.values():
        assert await wait_for_end(plane, name) is OperationState.SUCCEEDED

    made["signalled"] = await waiting(plane)
    await operations.signal(plane, by("a friend"), made["signalled"], name=SIGNAL)
    assert await wait_for_end(plane, made["signalled"]) is OperationState.SUCCEEDED

    bench.faults.delays = Delays(ready=1.2)
    nth = bench.faults.calls["runtime", "ensure"] + 1
    bench.strike(FaultPoint("runtime", "ensure", nth), Fault.UNREADY)
    made["polled"] = await accept(plane, "ready")
    assert await wait_for_end(plane, made["polled"]) is OperationState.SUCCEEDED

    nth = bench.faults.calls["credentials", "ensure"] + 1
    bench.strike(FaultPoint("credentials", "ensure", nth), Fault.REFUSED)
    made["compensated"] = await accept(plane, "linear")
    assert await wait_for_end(plane, made["compensated"]) is OperationState.COMPENSATED

    nth = bench.faults.calls["access", "ensure"] + 1
    bench.strike(FaultPoint("access", "ensure", nth), Fault.LOST)
    made["cancelled"] = await accept(plane, "linear")
    await eventually(lambda: bench.faults.calls["access", "ensure"] == nth)
    await operations.cancel(plane, by("the caller"), made["cancelled"])
    assert await wait_for_end(plane, made["cancelled"]) is OperationState.COMPENSATED

    made["cancelled-in-temporal"] = await waiting(plane)
    client: Any = engine_of(plane)._runs.client
    await client.get_workflow_handle(made["cancelled-in-temporal"]).cancel()
    assert await wait_for_end(plane, made["cancelled-in-temporal"]) is OperationState.COMPENSATED

    bench.strike(FaultPoint("meter", "ensure", 1), Fault.BROKE)
    bench.strike(FaultPoint("meter", "ensure", 2), Fault.BROKE)
    made["stuck"] = await accept(plane, "unaskable")
    made["abandoned"] = await accept(plane, "unaskable")
    for name in (made["stuck"], made["abandoned"]):
        assert await wait_for_end(plane, name) is OperationState.STUCK
    await operations.abandon(plane, by("an operator"), made["abandoned"])
    return {label: (plane, name) for label, name in made.items()}


def plain(history: str) -> str:
    """The history without the names of the machine it was made on."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: "worker" if k == "identity" else strip(v) for k, v in value.items()}
        if isinstance(value, str):
            return STICKY.sub("worker", value)
        return [strip(item) for item in value] if isinstance(value, list) else value

    return json.dumps(strip(json.loads(history)), indent=1) + "\n"


async def write(bench: TemporalBench, release: str) -> None:
    for label, (plane, name) in (await make(bench)).items():
        client: Any = engine_of(plane)._runs.client
        handle = client.get_workflow_handle(name)
        await handle.result()
        history = await handle.fetch_history()
        path = PLACE / f"{release}-{label}.json"
        path.write_text(plain(history.to_json()))
        print(path.name, len(history.events))


def main() -> None:
    PLACE.mkdir(exist_ok=True)
    release = sys.argv[1]
    with tempfile.TemporaryDirectory() as place, temporal_server(Path(place)) as server:

        async def scenario(bench: TemporalBench) -> None:
            await asyncio.wait_for(write(bench, release), 120)

        run_on_temporal(server.address, scenario)


if __name__ == "__main__":
    main()
