"""A tour in under a minute: one operation finishes, one is undone, one survives kill -9.

usage: python examples/01_operations/demo.py

The providers' resources are files in four directories, so you can count them without Tenure.  The
store is one SQLite file beside them.  All files are in a temporary directory, which is removed.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tenure

PROVIDERS = ("identity", "access", "runtime", "endpoint")
SLOW_SECONDS = 20.0
"""In the process that will be killed, the runtime's answer comes long after its file exists."""

CREATE_AGENT = tenure.Plan(
    "create_agent",
    stages=(
        tenure.provided("identity", "identity"),
        tenure.provided("access", "access"),
        tenure.provided("runtime", "runtime"),
        tenure.provided("exposed", "endpoint", kind=tenure.StepKind.PIVOT),
    ),
)


class Folder:
    """A provider whose resources are files: each is named by its key."""

    def __init__(self, directory: Path, name: str, *, slow: float = 0.0) -> None:
        self.folder = directory / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.slow = slow

    async def ensure(self, key: tenure.ResourceKey, spec):
        """Make the file.  The answer comes later, so a crash can come between the two."""
        burned = self.folder / f"{key.text}.burned"
        if burned.exists() or spec.get("refuse") == self.name:
            burned.touch()  # a refusal is final, also for a call that is still on its way
            raise tenure.Rejected(f"{self.name} refuses this spec")
        if self.generation(key) > key.generation:
            raise tenure.Rejected(f"{key.text} belongs to a later operation")
        (self.folder / key.text).write_text(f"{key.plane} {key.agent} {key.generation}")
        await asyncio.sleep(self.slow)
        return {"file": key.text}

    async def inspect(self, key: tenure.ResourceKey) -> tenure.Observation:
        """Whether the file is there."""
        if not (self.folder / key.text).exists():
            return tenure.Observation(tenure.Presence.ABSENT)
        found = {"file": key.text}
        return tenure.Observation(tenure.Presence.READY, found, key.plane, self.generation(key))

    async def remove(self, key: tenure.ResourceKey) -> None:
        """Delete the file; another file records that the key is never used again."""
        (self.folder / f"{key.text}.burned").touch()
        (self.folder / key.text).unlink(missing_ok=True)

    async def list_owned(self, plane: str):
        """Every file that was made for this plane."""
        for name in self.files():
            owner, agent, generation = (self.folder / name).read_text().split()
            if owner == plane:
                yield tenure.OwnedResource(name, agent, int(generation), 0.0)

    def generation(self, key: tenure.ResourceKey) -> int:
        """The number of the operation that made the file; 0: there is none."""
        file = self.folder / key.text
        return int(file.read_text().split()[2]) if file.exists() else 0

    def files(self) -> list[str]:
        """The names of the files."""
        return sorted(file.name for file in self.folder.iterdir() if file.suffix != ".burned")


def folders(directory: Path, *, slow: float = 0.0) -> dict[str, Folder]:
    """The four providers; only the runtime is slow."""
    return {
        name: Folder(directory, name, slow=slow if name == "runtime" else 0.0) for name in PROVIDERS
    }


def open_plane(directory: Path, *, slow: float = 0.0):
    """A plane on the file in this directory."""
    providers = folders(directory, slow=slow)
    return tenure.open_plane(directory / "tenure.db", plans=[CREATE_AGENT], providers=providers)


def count(directory: Path) -> dict[str, int]:
    """How many files each provider has."""
    return {name: len(folder.files()) for name, folder in folders(directory).items()}


def show_count(directory: Path) -> None:
    """Print how many files each provider has."""
    counted = "  ".join(f"{name} {number}" for name, number in count(directory).items())
    print(f"    the providers hold: {counted}")


MARKS = {
    tenure.IntentState.PRESENT: "done",
    tenure.IntentState.BURNED: "undone",
    tenure.IntentState.REMOVING: "being undone",
    tenure.IntentState.REFUSED: "refused",
    tenure.IntentState.INTENDED: "running",
    None: "not reached",
}


def show(operation: tenure.OperationView) -> None:
    """An operation and its steps."""
    for step in operation.steps:
        print(f"      {step.name:10} {MARKS[step.state]}")
    why = f"  ({operation.error})" if operation.error else ""
    print(f"    => {operation.state}{why}")


async def create(plane: tenure.OpenPlane, **spec: object) -> tenure.OperationView:
    """Start an operation and wait for its end."""
    started = await plane.start("create_agent", input=spec)
    return await plane.wait(started.id, seconds=120)


async def victim(directory: Path) -> None:
    """Start one operation, print its id, and be killed before it ends."""
    async with open_plane(directory, slow=SLOW_SECONDS) as plane:
        started = await plane.start("create_agent", input={"name": "carol"})
        print(started.id, flush=True)
        await asyncio.sleep(60)


def kill_one(directory: Path) -> str:
    """Kill a process with -9 after the runtime is made and before its answer; the operation."""
    before = count(directory)["runtime"]
    child = subprocess.Popen(
        [sys.executable, __file__, "--victim", str(directory)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        started = child.stdout.readline().strip()
        give_up_at = time.monotonic() + 60
        while count(directory)["runtime"] == before and time.monotonic() < give_up_at:
            time.sleep(0.01)
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    print(f"    operation {started} was accepted; its process is dead (kill -9)")
    return started


async def tour(directory: Path) -> bool:
    """Run the three parts; whether each of them ended correctly."""
    print("1. A plan that finishes: identity, access, runtime, exposed.")
    async with open_plane(directory) as plane:
        alice = await create(plane, name="alice")
        show(alice)
        show_count(directory)
        print("\n2. The runtime refuses.  The earlier steps are undone, newest first.")
        bob = await create(plane, name="bob", refuse="runtime")
        show(bob)
        show_count(directory)
    print("\n3. kill -9 in the middle: the runtime exists, and no process has recorded it.")
    killed = await asyncio.to_thread(kill_one, directory)
    show_count(directory)
    print("    a new process opens the same file and recovers:")
    began = time.monotonic()
    async with open_plane(directory) as plane:
        carol = await plane.wait(killed, seconds=120)
    print(f"    recovered in {time.monotonic() - began:.2f} s; the runtime was found by its key")
    show(carol)
    show_count(directory)
    ends = alice.state, bob.state, carol.state
    right = ends == ("SUCCEEDED", "COMPENSATED", "SUCCEEDED")
    return right and set(count(directory).values()) == {2}


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
        print(
            "\nTwo agents are complete, the refused one left nothing, no resource was made twice."
        )
        return 0
    print("\nThis is not the expected end: please report the output above.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
