"""A tour in under a minute: one operation finishes, one is undone, one survives kill -9.

usage: python examples/01_operations/demo.py

What providers hold are files on three shelves (directories), so the truth can be looked at from
outside Tenure; the store is one SQLite file beside them.  Everything is made in a temporary
directory and removed.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tenure.app.operations import admission, reads
from tenure.app.operations.admission import Accept
from tenure.app.operations.views import OperationView
from tenure.app.plane import Plane
from tenure.core.operation import IntentState, OperationState
from tenure.core.plan import Plan, StepKind
from tenure.plans.steps import provided
from tenure.settings import Settings
from tenure.testing.shelf import Shelf
from tenure.wiring import running

SHELVES = ("identity", "access", "runtime", "endpoint")
SLOW_SECONDS = 20.0
"""In the process that will be killed, the runtime exists long before its answer comes."""

CREATE_AGENT = Plan(
    "create_agent",
    stages=(
        provided("identity", "identity"),
        provided("access", "access"),
        provided("runtime", "runtime"),
        provided("exposed", "endpoint", kind=StepKind.PIVOT),
    ),
)


def shelves(directory: Path, *, slow: float = 0.0) -> dict[str, Shelf]:
    """The four providers; only the runtime's is slow."""
    return {
        name: Shelf(directory, name, now=time.time, slow=slow if name == "runtime" else 0.0)
        for name in SHELVES
    }


def world(directory: Path) -> dict[str, int]:
    """What the providers really hold, counted in their own files."""
    return {name: len(shelf.held()) for name, shelf in shelves(directory).items()}


def show_world(directory: Path) -> None:
    """One line of truth."""
    counted = "  ".join(f"{name} {count}" for name, count in world(directory).items())
    print(f"    the world holds: {counted}")


MARKS = {
    IntentState.PRESENT: "done",
    IntentState.BURNED: "undone",
    IntentState.REMOVING: "being undone",
    IntentState.REFUSED: "refused",
    IntentState.INTENDED: "under way",
    None: "not reached",
}


def show(operation: OperationView) -> None:
    """An operation and its steps."""
    for step in operation.steps:
        print(f"      {step.name:10} {MARKS[step.state]}")
    why = f"  ({operation.error})" if operation.error else ""
    print(f"    => {operation.state}{why}")


async def create(plane: Plane, **wanted: object) -> OperationView:
    """Ask for an agent and wait for the end."""
    accepted = await admission.accept(plane, Accept("create_agent", input=wanted))
    return await reads.wait(plane, "default", accepted.id, seconds=120)


async def victim(directory: Path) -> None:
    """Accept one operation, say its id, and be killed before it ends."""
    settings = Settings(store=str(directory / "tenure.db"))
    providers = shelves(directory, slow=SLOW_SECONDS)
    async with running(settings, plans=[CREATE_AGENT], providers=providers) as plane:
        accepted = await admission.accept(plane, Accept("create_agent", input={"name": "carol"}))
        print(accepted.id, flush=True)
        await asyncio.sleep(60)


def kill_one(directory: Path) -> str:
    """Kill a process with -9 once it has made a runtime but does not know; its operation."""
    before = world(directory)["runtime"]
    child = subprocess.Popen(
        [sys.executable, __file__, "--victim", str(directory)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        accepted = child.stdout.readline().strip()
        give_up_at = time.monotonic() + 60
        while world(directory)["runtime"] == before and time.monotonic() < give_up_at:
            time.sleep(0.01)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    print(f"    operation {accepted} was accepted; its process is dead (kill -9)")
    return accepted


async def tour(directory: Path) -> bool:
    """The three stories; whether all of them ended as they must."""
    settings = Settings(store=str(directory / "tenure.db"))
    providers = shelves(directory)
    print("1. A plan that finishes: identity, access, runtime, exposed.")
    async with running(settings, plans=[CREATE_AGENT], providers=providers) as plane:
        alice = await create(plane, name="alice")
        show(alice)
        show_world(directory)
        print("\n2. The runtime refuses.  What was done before is undone, newest first.")
        bob = await create(plane, name="bob", refuse="runtime")
        show(bob)
        show_world(directory)
    print("\n3. kill -9 in the middle: the runtime is there, and nobody has recorded it.")
    killed = await asyncio.to_thread(kill_one, directory)
    show_world(directory)
    print("    a new process opens the same file and recovers:")
    began = time.monotonic()
    async with running(settings, plans=[CREATE_AGENT], providers=providers) as plane:
        carol = await reads.wait(plane, "default", killed, seconds=120)
    print(f"    recovered in {time.monotonic() - began:.2f} s; the runtime was found by its key")
    show(carol)
    show_world(directory)
    ends = alice.state, bob.state, carol.state
    right = ends == (OperationState.SUCCEEDED, OperationState.COMPENSATED, OperationState.SUCCEEDED)
    return right and set(world(directory).values()) == {2}


def main() -> int:
    """Run the tour in a directory of its own."""
    if sys.argv[1:2] == ["--victim"]:
        asyncio.run(victim(Path(sys.argv[2])))
        return 0
    with tempfile.TemporaryDirectory(prefix="tenure-demo-") as directory:
        print("Tenure: every operation finishes or is undone, and says which.")
        print(f"(files in {directory})\n")
        right = asyncio.run(tour(Path(directory)))
    if right:
        print("\nTwo agents stand whole, the refused one left nothing, no resource was made twice.")
        return 0
    print("\nThis is not how it should have ended: please report what stands above.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
