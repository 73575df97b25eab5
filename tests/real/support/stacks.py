"""A store and an engine together, worker processes on them, and what is left when they are gone."""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from proofs.kills import audit
from proofs.kills.audit import shelves_of
from proofs.kills.kill9 import all_ended
from tenure.app.pages import every
from tenure.core.ids import ResourceKey
from tenure.core.limits import LATE_SECONDS
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.records import AgentRecord, JournalRecord, OperationRecord
from tenure.plans.steps import provided
from tenure.ports.provider import Observation, Provider, Spec
from tenure.ports.store import R, Store
from tenure.settings import Settings
from tenure.wiring import run_plane
from tests.real.support.counting_services import COUNTING_PLANS, LEDGER, METER, CountingProvider

STACKS = ("sqlite_embedded", "postgres_embedded", "postgres_temporal")
PLANS = (*audit.PLANS, *COUNTING_PLANS)
LINEAR_2 = Plan(
    audit.LINEAR.name,
    stages=tuple(provided(f"{name}_2", name) for name in reversed(audit.SHELVES)),
    version=2,
)
NEXT_PLANS = (*PLANS, LINEAR_2)
"""Of the release after this one: it knows the old plan, and accepts under a new one."""
LEASE_TTL_SECONDS = 2.0
END_SECONDS = LATE_SECONDS + 90.0
"""A pivot that was lost and then refused waits for what may still come before it is undone."""
PAGE = 1_000
_queues = itertools.count()


@dataclass(frozen=True, slots=True)
class Stack:
    """What a plane runs on: the fields of `Settings` that say so."""

    store: str
    engine: str = "embedded"
    temporal_address: str = ""
    temporal_queue: str = ""
    lease_ttl_seconds: float = LEASE_TTL_SECONDS

    @property
    def is_shared(self) -> bool:
        """Whether several processes can use it at the same time."""
        return "://" in self.store

    @property
    def name(self) -> str:
        """As it is counted."""
        return f"{'postgres' if self.is_shared else 'sqlite'}_{self.engine}"

    def settings(self) -> Settings:
        return Settings(**asdict(self))


def on_temporal(url: str, address: str) -> Stack:
    """With a task queue of its own."""
    return Stack(url, "temporal", address, f"stack-{os.getpid()}-{next(_queues)}")


def providers_of(
    directory: Path, *, slow: float = 0.0, is_held: bool = False
) -> dict[str, Provider]:
    """Shelves and books, all below this directory; what is `held` is done and not answered."""
    books: dict[str, Provider] = {
        name: CountingProvider(directory, name) for name in (LEDGER, METER)
    }
    found: dict[str, Provider] = {**shelves_of(directory, slow=slow), **books}
    if is_held:
        found |= {name: DelayedAnswers(directory, found[name]) for name in ("runtime", *books)}
    return found


def let_answer(directory: Path) -> None:
    """From now on what is held below this directory is answered."""
    (directory / "answered").touch()


class DelayedAnswers:
    """A provider whose ensures are applied at once and answered when they are let.

    Its worker can be killed, or stopped, between doing and knowing, however long that takes.
    """

    def __init__(self, directory: Path, inner: Provider) -> None:
        self._sign = directory / "answered"
        self._inner = inner
        self.inspect = inner.inspect
        self.remove = inner.remove
        self.list_owned = inner.list_owned

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        reference = await self._inner.ensure(key, spec)
        while not self._sign.exists():  # noqa: ASYNC110 (it is said by another process)
            await asyncio.sleep(0.02)
        return reference


class Gate:
    """Providers that let nobody through until it is opened, and know who waits."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.waiting: set[str] = set()
        """Keys that somebody has called for."""

    def before(self, providers: dict[str, Provider]) -> dict[str, Provider]:
        return {name: GatedProvider(self, one) for name, one in providers.items()}


class GatedProvider:
    """See `tenure.ports.provider.Provider`."""

    def __init__(self, gate: Gate, inner: Provider) -> None:
        self._gate = gate
        self._inner = inner
        self.list_owned = inner.list_owned

    async def _pass(self, key: ResourceKey) -> None:
        self._gate.waiting.add(key.text)
        await self._gate.opened.wait()

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        await self._pass(key)
        return await self._inner.ensure(key, spec)

    async def inspect(self, key: ResourceKey) -> Observation:
        await self._pass(key)
        return await self._inner.inspect(key)

    async def remove(self, key: ResourceKey) -> None:
        await self._pass(key)
        await self._inner.remove(key)


class Worker:
    """A process of `tests.real.support.stack_worker`, begun with these words before its own."""

    def __init__(
        self, stack: Stack, directory: Path, life: int, *before: str, most: int = 0,
        slow: float = 0.05, is_held: bool = False, ablate: str = "", newer: bool = False,
    ) -> None:  # fmt: skip
        self.said = directory / f"said-{life:03}"
        self.errors = directory / f"errors-{life:03}"
        told = json.dumps(asdict(stack))
        command = [*before, sys.executable, "-m", "tests.real.support.stack_worker", told]
        command += [str(directory / "world"), str(life), str(most)]
        command += ["held" if is_held else str(slow), ablate]
        command += ["newer"] if newer else []
        with self.said.open("wb") as out, self.errors.open("ab") as errors:
            self.process = subprocess.Popen(command, stdout=out, stderr=errors)

    def wait_for(self, word: str, *, count: int = 1, seconds: float = 150.0) -> None:
        until = time.monotonic() + seconds
        while self.said.read_text().split().count(word) < count:
            assert self.process.poll() is None, self.errors.read_text()[-2000:]
            assert time.monotonic() < until, f"it never said {word}: {self.said.read_text()[-500:]}"
            time.sleep(0.02)

    def accepted(self) -> list[str]:
        """The operations that it was told are accepted."""
        return [line.operation for line in audit.lines_of([self.said]) if line.word == "accepted"]

    def tell(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def finish_and_audit(
    stack: Stack, directory: Path, *, plans: tuple[Plan, ...] = PLANS, seconds: float = END_SECONDS
) -> audit.Report:
    """Let one more plane finish what is open, then compare the witnesses."""

    async def finish() -> dict[str, audit.StoredOperation]:
        providers = providers_of(directory / "world")
        async with run_plane(stack.settings(), plans=plans, providers=providers) as plane:
            assert await all_ended(plane, seconds)
            return await stored_operations(plane.store)

    kept = asyncio.run(finish())
    report = audit.Report()
    audit._audit_lines(audit.lines_of(directory.glob("said-*")), kept, report)
    audit._audit_operations(kept, report)
    audit._audit_world(directory / "world", kept, report)
    assert report.sound, report
    return report


async def stored_operations(store: Store) -> dict[str, audit.StoredOperation]:
    """Every operation, whose journal has no gap, whose agent is free and whose end was told."""
    rows = await rows_of(store, OperationRecord)
    journals = await journals_in(store, [row.id for row in rows])
    for journal in journals.values():
        assert [line.seq for line in journal] == list(range(1, len(journal) + 1))
    agents = await rows_of(store, AgentRecord)
    assert {agent.operation for agent in agents} <= {None}
    await _told_in_order(store, journals)
    return {
        row.id: audit.StoredOperation(row.state, str(json.loads(row.input)["label"]))
        for row in rows
    }


async def _told_in_order(store: Store, journals: dict[str, list[JournalRecord]]) -> None:
    """Every operation's first event is of its acceptance, its last of its end; all in order."""
    told: dict[str, list[str]] = {}
    after = 0
    while page := await store.list_events(after=after, limit=PAGE):
        assert all(row.position > after for row in page)
        for row in page:
            told.setdefault(row.operation, []).append(row.type)
        after = page[-1].position
    ends = tuple(state.lower() for state in (OperationState.SUCCEEDED, OperationState.COMPENSATED))
    for name in journals:
        assert told[name][0].endswith("accepted"), told[name]
        assert told[name][-1].endswith(ends), told[name]


async def rows_of(store: Store, record: type[R]) -> list[R]:
    return [row async for row in every(store, record)]


async def journals_in(store: Store, names: list[str]) -> dict[str, list[JournalRecord]]:
    """The whole journal of each of these operations."""
    return {
        name: list(await store.list_rows(JournalRecord, {"operation": name}, limit=PAGE))
        for name in names
    }
