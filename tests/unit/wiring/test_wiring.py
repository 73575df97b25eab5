"""From settings to a plane that runs, and out again."""

import asyncio
import gc
import sys

import pytest

from tenure import wiring
from tenure.adapters.clock.system import SystemClock
from tenure.adapters.engine import temporal
from tenure.app.operations import admission, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.app.operations.single_claims import SingleClaims
from tenure.core.errors import Invalid, StoreLocked
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.records import AuditRecord, LeaseRecord
from tenure.home.shared_settings import SharedSettings, SharedSettingsFile
from tenure.ports.store import Change, Put, Row
from tenure.reconcilers.driver import reconciling
from tenure.reconcilers.passes import RetentionPeriods
from tenure.settings import Settings
from tenure.testing import memory_store
from tenure.testing.operators import by
from tenure.wiring import run_agent_plane, run_plane
from tenure.wiring.engine import TEMPORAL_LEASES, refuse_second_engine
from tests.unit.support.scripted_planes import TENANT, Script, step

PLAN = Plan("one", stages=(step("made", Script()),))


@pytest.mark.parametrize("collect_after", [0, 123_456])
def test_a_plane_sets_the_collector_if_it_is_told_to_and_back_when_it_ends(tmp_path, collect_after):
    settings = Settings(store=str(tmp_path / "tenure.db"), collect_after=collect_after)
    gc.unfreeze()  # what other tests of this process have left
    before = gc.get_threshold()

    async def main():
        async with run_plane(settings, plans=[PLAN], providers={}) as plane:
            meanwhile = gc.get_threshold()[0]
            assert gc.isenabled()
            assert bool(gc.get_freeze_count()) is bool(collect_after)  # what was taken over
            with pytest.raises(StoreLocked):
                await run_plane(settings, plans=[PLAN], providers={}).__aenter__()
            assert gc.get_threshold()[0] == meanwhile
            name = (await admission.accept(plane, OperationRequest("one"))).id
            return (await reads.wait(plane, TENANT, name)).state, meanwhile

    assert asyncio.run(main()) == (OperationState.SUCCEEDED, collect_after or before[0])
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_a_plane_that_is_to_publish_by_nats_does_not_start_without_its_client(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "nats", None)
    monkeypatch.delitem(sys.modules, "tenure.adapters.bus.nats", raising=False)
    settings = Settings(home=str(tmp_path), bus="nats://127.0.0.1:4222", sandbox="off")

    async def main():
        async with run_agent_plane(settings):
            pytest.fail("it started")

    with pytest.raises(Invalid, match=r"nats is not installed: in a checkout make .*\[nats\]"):
        asyncio.run(main())


def test_a_verb_of_an_operator_is_audited_by_a_wired_plane(tmp_path):
    """The kernel knows no audit log: the plane is wired with what writes to it."""

    async def main():
        settings = Settings(store=str(tmp_path / "tenure.db"))
        async with run_plane(settings, plans=[PLAN], providers={}) as plane:
            await plane.engine.stop()
            name = (await admission.accept(plane, OperationRequest("one"))).id
            await operations.cancel(plane, by("someone"), name)
            rows = await plane.store.list_rows(AuditRecord, {}, limit=10)
            return [(row.action, row.target == name) for row in rows]

    assert asyncio.run(main()) == [("operation.cancel", True)]


def test_an_engine_that_is_stopped_inside_the_block_ends_nothing_else(tmp_path):
    async def main():
        settings = Settings(store=str(tmp_path / "tenure.db"))
        async with run_plane(settings, plans=[PLAN], providers={}) as plane:
            await plane.engine.stop()
            await asyncio.sleep(0)
            return await admission.accept(plane, OperationRequest("one"))

    assert asyncio.run(main()).state is OperationState.PENDING


def test_a_home_whose_store_is_elsewhere_is_left_as_it_is(tmp_path):
    SharedSettingsFile(tmp_path).write(
        SharedSettings("home", "postgresql://tenure@db/tenure (schema tenure)")
    )
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}

    async def main():
        async with run_agent_plane(Settings(home=str(tmp_path), sandbox="off")):
            pytest.fail("it started an empty plane")

    with pytest.raises(Invalid, match="name it, by --store or TENURE_STORE; a new plane needs"):
        asyncio.run(main())
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_is_said_of_drift_and_retention_reaches_the_reconcilers_of_every_process(
    tmp_path, monkeypatch
):
    told = []

    def looking(plane, **kwargs):
        told.append((kwargs["policy"].repairs, kwargs["policy"].retention))
        return reconciling(plane, **kwargs)

    async def main():
        home = Settings(
            home=str(tmp_path / "home"), sandbox="off", drift="report", keep_findings_days=2.0,
            keep_operations_days=0.0,
        )  # fmt: skip
        for settings in (home, Settings(home=home.home, is_worker=True)):
            async with run_agent_plane(settings):
                pass

    monkeypatch.setattr(wiring, "reconciling", looking)
    asyncio.run(main())
    assert told == [(False, RetentionPeriods(findings=172_800.0, operations=0.0))] * 2


@pytest.fixture
def tables(monkeypatch):
    """A store that several processes share, in memory."""
    kept = memory_store.Tables()

    async def open_store(_: Settings, *, clock, **__: object) -> memory_store.MemoryStore:
        return memory_store.build(clock=clock, tables=kept)

    monkeypatch.setattr(wiring, "open_store", open_store)
    return kept


async def _moved_by_temporal() -> str:
    """An operation that is open, and Temporal's."""
    claims = SingleClaims(temporal.WORKER, idle_worker=temporal.IDLE_WORKER)
    async with run_plane(Settings(executes_operations=False), plans=[PLAN], providers={}) as plane:
        claims.attach(plane)
        operation = (await admission.accept(plane, OperationRequest("one"))).id
        await claims.begin(operation)
        for name in (temporal.WORKER, temporal.IDLE_WORKER):
            row: Row = {"holder": name, "token": 1, "until": 1e11}
            await plane.store.commit(Change("", (), (Put("lease", (f"worker/{name}",), row),)))
    return operation


@pytest.mark.usefixtures("tables")
def test_an_embedded_engine_is_refused_beside_temporal_unless_temporal_is_left():
    async def main() -> OperationState:
        operation = await _moved_by_temporal()
        for works in (True, False):
            with pytest.raises(Invalid, match=r"nothing was changed\. Use --engine temporal"):
                await run_plane(
                    Settings(executes_operations=works), plans=[PLAN], providers={}
                ).__aenter__()
        async with run_plane(Settings(leave_temporal=True), plans=[PLAN], providers={}) as plane:
            state = (await reads.wait(plane, TENANT, operation)).state
        async with run_plane(Settings(), plans=[PLAN], providers={}) as plane:
            assert await plane.store.find(LeaseRecord, (f"worker/{temporal.IDLE_WORKER}",)) is None
        return state

    assert asyncio.run(main()) is OperationState.SUCCEEDED


@pytest.mark.usefixtures("tables")
def test_beside_temporal_an_embedded_engine_would_leave_its_operations_alone(monkeypatch):
    """The ablation: it starts, and says nothing."""

    async def anything(*_: object) -> None:
        pass

    monkeypatch.setattr(wiring, "refuse_second_engine", anything)

    async def main() -> OperationState:
        operation = await _moved_by_temporal()
        async with run_plane(Settings(), plans=[PLAN], providers={}) as plane:
            return (await reads.wait(plane, TENANT, operation, seconds=0.3)).state

    assert asyncio.run(main()) is OperationState.RUNNING


def test_temporal_is_not_left_for_temporal():
    settings = Settings(engine="temporal", leave_temporal=True)
    with pytest.raises(Invalid, match="needs --engine embedded"):
        asyncio.run(refuse_second_engine(settings, memory_store.build(clock=SystemClock())))


def test_the_leases_of_temporal_are_those_of_its_engine():
    names = (temporal.WORKER, temporal.IDLE_WORKER)
    assert tuple(f"worker/{name}" for name in names) == TEMPORAL_LEASES
