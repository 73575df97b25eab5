"""A small plane that any release can live: its file is run with that release on the path.

So it imports only what every release has.  `write` leaves operations in every phase and dies;
`die` dies at every crossing of a port in turn, each in a directory of its own; `finish` lets the
release go on with what is there and prints how each operation ended and what is in the world.

usage: python any_release.py write|die|finish DIRECTORY [--ablate only_adds]
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

from tenure import wiring
from tenure.core import plan as plans
from tenure.core.endings import Done, Ending, Waiting
from tenure.core.errors import Conflict, Unavailable
from tenure.core.ids import ResourceKey
from tenure.core.limits import StepLimits
from tenure.core.plan import Plan, Step, nothing, repeat
from tenure.plans import steps
from tenure.ports.provider import Call, Spec
from tenure.settings import Settings
from tenure.testing.shelf import Shelf

try:
    from tenure.app.operations import admission, commands, reads
except ImportError:  # a release before the rooms of `app/`
    from tenure.app import operations as commands  # type: ignore[no-redef]

    admission = reads = commands  # type: ignore[misc]


def by_any_name(owner: object, *names: str) -> Any:
    """The attribute that a release has under one of these names; the newest name comes first."""
    return next(getattr(owner, name) for name in names if hasattr(owner, name))


# Names are texts here, so that a rename in this release does not rename what older ones have.
run_plane = by_any_name(wiring, "run_plane", "running")
StepKind = by_any_name(plans, "StepKind", "Kind")
resource_step = by_any_name(steps, "resource_step", "provided")
OperationRequest = by_any_name(admission, "OperationRequest", "Accept")
get_operation = by_any_name(reads, "get_operation", "get")
TENANT = "default"
SHELVES = ("identity", "access", "runtime", "credentials", "exposure")
SIGNAL = "approved"
UNRULY = "unruly"
"""A file: while it is there, providers do what an operation's input asks them to."""
STORE = "tenure.db"
DIED = 9
WAIT_SECONDS = 100.0
QUICK = StepLimits(
    deadline_seconds=3e9,  # golden files are finished years after they were written
    undo_seconds=0.3,
    retry_first_seconds=0.02,
    retry_cap_seconds=0.1,
)
PHASES: dict[str, tuple[dict[str, object], str]] = {
    "done": ({}, "SUCCEEDED"),
    "running": ({"hang": "access"}, "RUNNING"),
    "waiting": ({"ask": True}, "WAITING"),
    "compensating": ({"refuse": "credentials", "linger": "runtime"}, "COMPENSATING"),
    "stuck": ({"refuse": "credentials", "stick": "runtime"}, "STUCK"),
    "pending": ({}, "PENDING"),
}
"""What is asked of an operation, and the state in which it is left."""


class Unruly(Shelf):
    """A shelf that hangs and fails where the spec says so, while there is a file that allows it."""

    def __init__(self, directory: Path, name: str) -> None:
        """The shelf of this name."""
        super().__init__(directory, name, now=lambda: 0.0)
        self.name = name
        self.allowed = directory / UNRULY

    def does(self, spec: Spec, what: str) -> bool:
        """Whether it is asked, and allowed, to misbehave so."""
        return spec.get(what) == self.name and self.allowed.exists()

    def agent_of(self, name: str) -> str:
        """Whose the thing under this key is."""
        return str((self._read(name) or {})["agent"])

    async def ensure(self, key: ResourceKey, spec: Spec) -> Any:
        """Hang after it is done."""
        made = await super().ensure(key, spec)
        if self.does(spec, "hang"):
            await asyncio.Event().wait()
        return made

    async def remove(self, key: ResourceKey) -> None:
        """Hang before it is done, or fail."""
        there = self._read(key.text)
        spec: Any = there["spec"] if there else {}
        if self.does(spec, "linger"):
            await asyncio.Event().wait()
        if self.does(spec, "stick"):
            message = "not now"
            raise Unavailable(message)
        await super().remove(key)


async def _approval(call: Call) -> Ending:
    said = call.signals.get(SIGNAL, ())
    return Done({}) if said or not call.input.get("ask") else Waiting(SIGNAL, "someone must say so")


PLAN = Plan(
    "golden",
    stages=(
        resource_step("identity", "identity", limits=QUICK),
        (
            resource_step("access", "access", limits=QUICK),
            resource_step("runtime", "runtime", limits=QUICK),
        ),
        Step("approval", _approval, nothing, repeat, limits=QUICK),
        resource_step("credentials", "credentials", limits=QUICK),
        resource_step("exposure", "exposure", kind=StepKind.PIVOT, limits=QUICK),
    ),
)


class Idle:
    """An engine of a process that only accepts."""

    worker = ""

    def __getattr__(self, _: str) -> Any:
        return lambda *_: None


def _plane(directory: Path, providers: dict[str, Any]) -> Any:
    settings = Settings(store=str(directory / STORE), lease_ttl_seconds=600.0)
    return run_plane(settings, plans=[PLAN], providers=providers)


def _shelves(directory: Path) -> dict[str, Any]:
    return {name: Unruly(directory, name) for name in SHELVES}


async def write(directory: Path) -> None:
    """Leave one operation in every phase, and die."""
    async with _plane(directory, _shelves(directory)) as plane:
        for label, (asked, state) in PHASES.items():
            there = replace(plane, engine=Idle()) if state == "PENDING" else plane
            command = OperationRequest("golden", label, asked)
            name = (await admission.accept(there, command)).id
            async with asyncio.timeout(WAIT_SECONDS):
                while (await get_operation(plane, TENANT, name)).state != state:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        os._exit(DIED)


# --- at every crossing ----------------------------------------------------------------------------


class Crossing:
    """Counts calls of ports, before and after each, and dies at the one it is told to."""

    def __init__(self, at: int) -> None:
        """At this one; 0: never."""
        self.left = at

    def cross(self) -> None:
        """One more."""
        self.left -= 1
        if not self.left:
            os._exit(DIED)

    def around(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The call, with a crossing before and after it."""

        async def at_crossing(*args: Any, **kwargs: Any) -> Any:
            self.cross()
            answer = await call(*args, **kwargs)
            self.cross()
            return answer

        return at_crossing


async def _live_once(directory: Path, at: int) -> None:
    """Two operations, one of which is undone, until the crossing."""
    crossing = Crossing(at)
    shelves = _shelves(directory)
    for shelf in shelves.values():
        shelf.ensure = crossing.around(shelf.ensure)
        shelf.remove = crossing.around(shelf.remove)
    async with _plane(directory, shelves) as plane:
        plane.store.commit = crossing.around(plane.store.commit)
        for label, asked in (("done", {}), ("undone", {"refuse": "credentials"})):
            command = OperationRequest("golden", label, asked)
            name = (await admission.accept(plane, command)).id
            (directory / "accepted").open("a").write(f"{label}\n")
            await reads.wait(plane, TENANT, name, seconds=WAIT_SECONDS)


def die(root: Path) -> None:
    """Die at every crossing there is, each time in a new directory; print how many there were."""
    number = 0
    while True:
        number += 1
        directory = root / str(number)
        directory.mkdir(parents=True)
        child = os.fork()
        if not child:
            asyncio.run(_live_once(directory, number))
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != DIED:
            break
    print(number)


# --- going on ------------------------------------------------------------------------------------


async def finish(directory: Path) -> dict[str, Any]:
    """Let everything end: what is waited for is said, what is stuck is tried again."""
    (directory / UNRULY).unlink(missing_ok=True)
    shelves = _shelves(directory)
    async with _plane(directory, shelves) as plane:
        ended = await all_ended(plane)
    held = {
        name: sorted(shelf.agent_of(key) for key in by_any_name(shelf, "list_keys", "held")())
        for name, shelf in shelves.items()
    }
    return {"ended": ended, "held": held}


async def _ask(verb: Callable[..., Awaitable[Any]], plane: Any, on: str, **more: str) -> None:
    """An operator's word, said as the release wants to hear who asks."""
    if "by" in signature(verb).parameters:
        await verb(plane, TENANT, on, by="golden", **more)
    else:
        from tenure.testing.operators import by  # noqa: PLC0415 (older releases have no such thing)

        await verb(plane, by("golden"), on, **more)


async def all_ended(plane: Any) -> dict[str, str]:
    """How each operation ends."""
    ended: dict[str, str] = {}
    for row in await reads.list_operations(plane, TENANT):
        known: Any = row  # a release before the records has dictionaries
        name, label = (
            (known["id"], known["agent"]) if isinstance(known, dict) else (known.id, known.agent)
        )
        seen = await get_operation(plane, TENANT, name)
        if seen.state not in {"SUCCEEDED", "COMPENSATED"}:
            with suppress(Conflict):  # it has ended meanwhile
                await _ask(commands.signal, plane, name, name=SIGNAL)
        if seen.state == "STUCK":
            await _ask(commands.retry, plane, name)
        async with asyncio.timeout(WAIT_SECONDS):
            while seen.state not in {"SUCCEEDED", "COMPENSATED"}:
                seen = await reads.wait(plane, TENANT, name, seconds=1.0)
        ended[label] = str(seen.state)
    return ended


def ablate(name: str) -> None:
    """Take out the safeguard of this name."""
    from tenure.sqlite import migrations  # noqa: PLC0415 (only this release is ablated)

    if name != "only_adds":
        raise ValueError(name)
    migrations.Migration.only_adds = property(lambda _: False)  # type: ignore[method-assign,assignment]


def main(arguments: list[str]) -> None:
    """Do what is asked."""
    verb, directory, *more = arguments
    if more:
        ablate(more[1])
    place = Path(directory)
    match verb:
        case "write":
            place.mkdir(parents=True, exist_ok=True)
            (place / UNRULY).touch()
            asyncio.run(write(place))
        case "die":
            die(place)
        case "finish":
            for one in [place] if (place / STORE).exists() else sorted(place.iterdir()):
                if (one / STORE).exists():
                    print(json.dumps({"directory": one.name, **asyncio.run(finish(one))}))
        case _:
            raise ValueError(verb)


if __name__ == "__main__":
    main(sys.argv[1:])
