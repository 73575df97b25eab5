"""The crash matrix with real providers.

Goal: what the matrix shows with fakes holds with the embedded identity, access and credentials
services on their own files, and with real processes. Method: a plane on real files does one thing
after the other; at one crossing of one of its ports it dies: from then on every port of it is dead,
and nothing of it runs any more. A fresh plane on the same files is asked the same under the same
keys. Then every provider's own file is read by plain SQLite, and the process table, without a word
of Tenure's: exactly what the agent's state says is there. Where the runtime is not the point it is
a directory with a file for each agent; the crossings of the runtime are tried with real processes.
"""

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from proofs.agents.scenarios import Act, perform
from proofs.harness.cluster import WiredVerbs
from tenure.adapters.access import local as access
from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.credentials import local as credentials
from tenure.adapters.engine.embedded import EmbeddedEngine, EngineSettings
from tenure.adapters.identity import local as identity
from tenure.adapters.runtime.process import ProcessRuntime
from tenure.adapters.store import sqlite
from tenure.app.agents.commands import RequestOptions
from tenure.app.agents.plane_api import AgentPlaneApi
from tenure.app.agents.subject import SUBJECTS
from tenure.app.operations import reads
from tenure.app.operations.executor import Executor
from tenure.app.plane import Plane
from tenure.app.start_checks import prepare
from tenure.core.errors import CallerError, Rejected
from tenure.core.ids import ResourceKey
from tenure.core.operation import ENDED_OR_STUCK
from tenure.core.verb import VerbName
from tenure.plans.agents.lifecycle import PLANS
from tenure.plans.catalogue import Catalogue
from tenure.ports.provider import Observation, Presence, Spec
from tenure.ports.runtime import Status
from tenure.sqlite.commit_thread import InlineRunner
from tenure.testing.loop import Dead, _bury
from tenure.testing.tripwire import CrossingSide, Tripwire
from tests.real.support.runtimes import AGENT, agent_processes, keepers, until

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]

PLANE, TENANT = "plane", "default"
WAIT_SECONDS = 120.0
ISSUER = "http://127.0.0.1:7450"
PROCESS = {
    "command": [sys.executable, "-I", "-S", str(AGENT)],
    "ready_seconds": 120.0,
    "drain_seconds": 0.2,
}
CREATE = Act(VerbName.CREATE, given={"runtime": PROCESS})
EXITS = Act(VerbName.CREATE, given={"runtime": {**PROCESS, "env": {"MODE": "exits"}}})
SUSPEND, RESUME, DELETE = Act(VerbName.SUSPEND), Act(VerbName.RESUME), Act(VerbName.DELETE)
KEEP = Act(VerbName.SUSPEND, given={"keep_runtime": True})
ALL = ("access", "credentials", "identity", "runtime")
NO_RUNTIME = ("access", "credentials", "identity")
SCENARIOS = {
    "create": ((CREATE,), ALL),
    "create_fails": ((EXITS,), ()),
    "suspend": ((CREATE, SUSPEND), NO_RUNTIME),
    "resume": ((CREATE, SUSPEND, RESUME), ALL),
    "stop": ((CREATE, KEEP, RESUME, Act(VerbName.STOP)), NO_RUNTIME),
    "delete": ((CREATE, DELETE), ()),
    "delete_suspended": ((CREATE, SUSPEND, DELETE), ()),
    "delete_while_creating": ((CREATE, DELETE._replace(after_seconds=0.001)), ()),
}
"""What is asked, and what providers hold in the end."""
READS = ("store.find", "store.load", "store.list", "store.count", "store.plans")


class Mortal:
    """A process as its ports see it: alive, or dead for good."""

    def __init__(self) -> None:
        self.dead = False
        self.death = asyncio.Event()

    def check(self) -> None:
        if self.dead:
            raise Dead

    def crash(self) -> None:
        self.dead = True
        self.death.set()


class Shelf:
    """A runtime that runs nothing: a file for each agent, and one for each burned key."""

    zones = ("here",)

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(exist_ok=True)

    async def digest(self, spec: Spec) -> Spec:
        return spec

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        if (self._root / f"{key.text}.burned").exists():
            raise Rejected("it is burned")
        (self._root / key.text).write_text(json.dumps(spec))
        return {"address": key.text}

    async def inspect(self, key: ResourceKey) -> Observation:
        path = self._root / key.text
        if not path.exists():
            return Observation(Presence.ABSENT)
        broken = "exits" in path.read_text() or (self._root / f"{key.text}.burned").exists()
        presence = Presence.BROKEN if broken else Presence.READY
        return Observation(presence, {"address": key.text}, key.plane, key.generation)

    async def remove(self, key: ResourceKey) -> None:
        await self.stop(key)
        (self._root / key.text).unlink(missing_ok=True)

    async def status(self, key: ResourceKey) -> Status:
        return Status((await self.inspect(key)).presence)

    async def wait_ready(self, key: ResourceKey, *, seconds: float) -> Status:
        return await self.status(key)

    async def stop(self, key: ResourceKey) -> None:
        (self._root / f"{key.text}.burned").touch()


async def live(home: Path, acts, *, processes: bool, crash_at: int = 0, side=CrossingSide.BEFORE):
    """One life of a plane on these files; the crossings, and whether it died at one."""
    node = Mortal()
    wire = Tripwire(cast(Any, node), crash_at=crash_at, side=side)
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        raw = sqlite.build(home / "tenure.db", clock=clock, flush=InlineRunner())
        stack.callback(_let_go, raw)
        providers: dict[str, Any] = {
            "identity": identity.build(home / "identity.db", issuer=ISSUER, clock=clock),
            "access": access.build(home / "access.db", clock=clock),
            "credentials": credentials.build(home / "credentials.db", clock=clock),
        }
        for one in providers.values():
            stack.push_async_callback(one.close)
        providers["runtime"] = _runtime(home, processes, stack)
        plane = _plane(wire, wire.store(raw), providers, clock)
        driver = asyncio.ensure_future(_drive(plane, acts))
        death = asyncio.ensure_future(node.death.wait())
        await asyncio.wait({driver, death}, return_when=asyncio.FIRST_COMPLETED)
        if not node.dead:
            driver.result()
            stopping = asyncio.ensure_future(cast(Any, plane.engine).stop())
            await asyncio.wait({stopping, death}, return_when=asyncio.FIRST_COMPLETED)
        node.crash()
    return wire.crossings, wire.tripped


def alone(life):
    """Live it on a loop of its own; whatever is left of it then is never run."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    try:
        return loop.run_until_complete(life)
    finally:
        for task in asyncio.all_tasks(loop):
            _bury(task)
        loop.close()


def _runtime(home: Path, processes: bool, stack: AsyncExitStack) -> Any:
    if not processes:
        return Shelf(home / "runtimes")
    runtime = ProcessRuntime(
        home / "runtimes", clock=SystemClock(), sandbox="off", grace_seconds=0.2
    )
    stack.callback(runtime.close)
    return runtime


def _let_go(store) -> None:
    """As the kernel does for the dead: the log stays as it is."""
    store._file.writer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    store._file.close()


def _plane(wire, store, inner, clock) -> Plane:
    entropy, catalogue, api = SystemEntropy(), Catalogue(PLANS, SUBJECTS), AgentPlaneApi()
    providers: dict[str, Any] = {
        name: WiredVerbs(wire, name, provider) for name, provider in inner.items()
    }
    work = Executor(
        PLANE, store=store, entropy=entropy, catalogue=catalogue, providers=providers, api=api
    )
    engine: Any = EmbeddedEngine(
        work, store=store, clock=clock, entropy=entropy, settings=EngineSettings()
    )
    plane = Plane(
        id=PLANE, store=store, engine=engine, entropy=entropy, catalogue=catalogue,
        providers=providers,
    )  # fmt: skip
    api.attach(plane)
    return plane


async def _drive(plane: Plane, acts) -> None:
    """Ask for one after the other, each under its key, and wait for all of them."""
    await prepare(plane)
    await cast(Any, plane.engine).start()
    operations: list[str] = []
    for number, act in enumerate(acts):
        if act.after_seconds is None:
            await _wait_all(plane, operations)
        else:
            await asyncio.sleep(act.after_seconds)
        with suppress(CallerError):
            key = RequestOptions(idempotency_key=f"act {number}")
            operations.append((await perform(plane, act, request_options=key)).id)
    await _wait_all(plane, operations)


async def _wait_all(plane: Plane, operations) -> None:
    for operation in operations:
        seen = await reads.wait(plane, TENANT, operation, seconds=WAIT_SECONDS)
        assert seen.state in ENDED_OR_STUCK, seen


# --- what is there, without a word of Tenure's ---------------------------------------------------


def rows(path: Path, query: str) -> list[Any]:
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as file:
        return file.execute(query).fetchall()


def there(home: Path) -> dict[str, list[str]]:
    """What every provider holds, by its own file; and the processes."""
    present = "SELECT key FROM resource WHERE state = 'PRESENT'"
    providers = {
        name: [key for (key,) in rows(home / f"{name}.db", present)] for name in NO_RUNTIME
    }
    assert len(rows(home / "identity.db", "SELECT id FROM client")) == len(providers["identity"])
    granted = [key for (key,) in rows(home / "access.db", 'SELECT DISTINCT key FROM "grant"')]
    assert granted == providers["access"]
    registered = rows(home / "credentials.db", "SELECT DISTINCT key FROM registration")
    assert [key for (key,) in registered] == providers["credentials"]
    folder = home / "runtimes"
    providers["runtime"] = [p.name for p in folder.iterdir() if p.is_file() and "." not in p.name]
    return providers


def check(home: Path, expected, *, processes: bool) -> list[str]:
    """What is wrong with these files."""
    providers = there(home)
    wrong = []
    if processes:
        one = 1 if "runtime" in expected else 0

        def count_processes() -> tuple[int, int]:
            return len(keepers(home / "runtimes")), len(agent_processes(home / "runtimes"))

        # A keeper that came second takes a moment to see that.
        if not until(
            lambda: count_processes()[0] == one and bool(count_processes()[1]) == bool(one)
        ):
            wrong.append(f"keepers and processes are {count_processes()}, and wanted is {one}")
        providers["runtime"] = ["a process"] * one
    for name in ALL:
        if len(providers[name]) != (name in expected):
            wrong.append(f"{name} holds {providers[name]}")
    ((state, holder, waits),) = rows(home / "tenure.db", "SELECT state, operation, next FROM agent")
    if holder or waits:
        wrong.append(f"the agent is {state} and names {holder} and {waits}")
    reserved = rows(home / "tenure.db", "SELECT agent FROM reservation")
    if len(reserved) != bool(expected):
        wrong.append(f"the agent is {state} and {len(reserved)} places are taken")
    closed = [shut for (shut,) in rows(home / "credentials.db", "SELECT closed FROM closing")]
    if state == "READY" and any(closed):
        wrong.append("the agent is READY and its credentials are shut")
    if state == "SUSPENDED" and not all(closed):
        wrong.append("the agent is SUSPENDED and its credentials are open")
    return wrong


# --- the matrix -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder():
    """In memory where there is such a place: what a disk does when power fails is not the point."""
    memory = Path("/dev/shm")
    place = str(memory) if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tenure-real-", dir=place) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def template(folder: Path) -> Path:
    """Files of a plane that has done nothing yet: keys are made once."""
    home = folder / "template"
    home.mkdir()
    alone(live(home, (), processes=False))
    return home


def run(
    home: Path, template: Path, scenario, *, processes=False, crash_at=0, side=CrossingSide.BEFORE
):
    """One cell: live, die there, live again to the end; what is wrong, and whether it died."""
    shutil.copytree(template, home)
    acts, expected = SCENARIOS[scenario]
    crossings, died = alone(live(home, acts, processes=processes, crash_at=crash_at, side=side))
    if died:
        alone(live(home, acts, processes=processes))
    return check(home, expected, processes=processes), crossings, died


def sides(crossing: str) -> tuple[CrossingSide, ...]:
    return (
        (CrossingSide.BEFORE,)
        if crossing.startswith(READS)
        else (CrossingSide.BEFORE, CrossingSide.AFTER)
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_plane_on_real_files_dies_at_every_crossing(scenario, template, folder, tally):
    wrong, crossings, _ = run(folder / scenario, template, scenario)
    assert wrong == []
    cells = 0
    for number, crossing in enumerate(crossings, 1):
        for side in sides(crossing):
            home = folder / f"{scenario}-{number}-{side}"
            wrong, _, died = run(home, template, scenario, crash_at=number, side=side)
            assert wrong == [], f"{scenario}: it died {side} {crossing} (crossing {number})"
            cells += died
            shutil.rmtree(home)
    tally.add("crash_runs", cells)
    tally.add("real_cells", cells)
    assert cells > len(crossings)


@pytest.mark.parametrize("scenario", ["create_fails", "resume", "stop", "delete_while_creating"])
def test_a_plane_with_real_processes_dies_at_every_crossing_of_the_runtime(
    scenario, template, folder, tally
):
    place = folder / "processes" / scenario
    place.mkdir(parents=True)
    try:
        wrong, crossings, _ = run(place / "calm", template, scenario, processes=True)
        assert wrong == []
        for number, crossing in enumerate(crossings, 1):
            if not crossing.startswith("runtime."):
                continue
            for side in (CrossingSide.BEFORE, CrossingSide.AFTER):
                home = place / f"{number}-{side}"
                wrong, _, died = run(
                    home, template, scenario, processes=True, crash_at=number, side=side
                )
                assert wrong == [], f"{scenario}: it died {side} {crossing} (crossing {number})"
                tally.add("real_cells", died)
                tally.add("crash_runs", died)
                clean(home)
    finally:
        for home in place.iterdir():
            clean(home)


def clean(home: Path) -> None:
    """End what runs below here, whatever became of the test."""
    for pid in (*keepers(home / "runtimes"), *agent_processes(home / "runtimes")):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    shutil.rmtree(home, ignore_errors=True)
