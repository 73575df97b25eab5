"""A user's program: one plan on a plane in its own process, with `import tenure` alone.

usage: python library_program.py STORE TEMPORAL_ADDRESS TEMPORAL_QUEUE DIRECTORY

It starts an operation, signals it before any step waits for the signal, prints the operation's id
and goes on until it is killed. Its first step makes a file and does not return.
"""

import asyncio
import sys
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import tenure


def plan_of(directory: Path, *, slow: float = 0.0) -> tenure.Plan:
    """Make a file, wait for approval; the file is made long before the step returns."""

    async def make_file(call: tenure.Call) -> tenure.Done:
        (directory / call.key.text).touch()
        await asyncio.sleep(slow)
        return tenure.Done(call.key.text)

    async def remove_file(call: tenure.Call) -> None:
        (directory / call.key.text).unlink(missing_ok=True)

    async def await_approval(call: tenure.Call) -> tenure.Done | tenure.Waiting:
        if "approved" not in call.signals:
            return tenure.Waiting("approved")
        return tenure.Done(list(call.signals["approved"]))

    return tenure.Plan(
        "approve",
        stages=(
            tenure.Step("file", make_file, undo=remove_file, inspect=tenure.repeat),
            tenure.Step("approval", await_approval, undo=tenure.nothing, inspect=tenure.repeat),
        ),
    )


def open_library_plane(
    store: str, address: str, queue: str, directory: Path, *, slow: float = 0.0
) -> AbstractAsyncContextManager[tenure.OpenPlane]:
    """A plane on this stack."""
    temporal = tenure.Temporal(address, queue=queue) if address else None
    return tenure.open_plane(store, plans=[plan_of(directory, slow=slow)], temporal=temporal)


async def ask(plane: tenure.OpenPlane) -> tenure.OperationView:
    """Start the operation and approve it; however often this is repeated, it is done once."""
    started = await plane.start("approve", idempotency_key="start")
    approve = partial(plane.signal, name="approved", payload="eve", idempotency_key="approve")
    return await approve(started.id)


async def main(store: str, address: str, queue: str, directory: str) -> None:
    """Ask, print the id, and go on."""
    async with open_library_plane(store, address, queue, Path(directory), slow=60.0) as plane:
        print((await ask(plane)).id, flush=True)
        await asyncio.sleep(120)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
