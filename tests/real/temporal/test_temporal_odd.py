"""What Temporal could not carry never reaches it, and what it loses on the way stops nothing."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.workflowservice.v1 import DeprecateNamespaceRequest, RegisterNamespaceRequest

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.engine.temporal import TemporalSettings, probe, probe_workers
from tenure.adapters.engine.temporal import engine as temporal_engine
from tenure.adapters.engine.temporal import runs as temporal_runs
from tenure.adapters.engine.temporal.activities import ERROR_CHARACTERS_MAX
from tenure.adapters.engine.temporal.connection import (
    POLLER_TTL_SECONDS,
    connect,
    find_outage,
    register_attributes,
)
from tenure.adapters.engine.temporal.runs import RunLabels
from tenure.app.operations.single_claims import SingleClaims
from tenure.core.errors import CommitUnknown, Defect, EngineError, StaleToken, StoreError
from tenure.core.operation import OperationState
from tenure.ports.store import Change, Drop, Put, Row
from tenure.testing.contracts.engine import LINEAR, accept, wait_for_end
from tenure.testing.patches import patched
from tests.real.support.temporal_planes import TemporalBench, engine_of, eventually, run_on_temporal

pytestmark = pytest.mark.timeout(300)
LARGE = 5_000_000
"""Beyond the 2 MB of a payload, and the 4 MB of a message."""


def test_an_error_larger_than_temporal_takes_is_cut_and_the_move_tried_again(temporal) -> None:
    fell: list[str] = []

    async def scenario(bench: TemporalBench) -> None:
        begin = SingleClaims.begin

        async def failing(self: Any, operation: str, known_revision: Any = None) -> Any:
            if not fell:
                fell.append(operation)
                raise ValueError("x" * LARGE)
            return await begin(self, operation, known_revision)

        with patched(SingleClaims, begin=failing):
            plane = await bench.start()
            name = await accept(plane, "linear")
            assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
            client = engine_of(plane)._runs.client
            assert client is not None
            history = await client.get_workflow_handle(name).fetch_history()
            assert max(event.ByteSize() for event in history.events) < 10_000
            failed = [
                event.activity_task_started_event_attributes.last_failure
                for event in history.events
                if event.activity_task_started_event_attributes.HasField("last_failure")
            ]
            # It was told, and not found out when a heartbeat was missed.
            assert [one.application_failure_info.type for one in failed] == ["ValueError"]
            assert failed[0].message == "x" * ERROR_CHARACTERS_MAX
        assert fell == [name]
        assert bench.applied_calls() == LINEAR

    run_on_temporal(temporal.address, scenario)


# --- an engine that is told odd things ------------------------------------------------------------


def test_a_relay_bears_a_store_that_refuses_and_ends_with_one_that_fails(temporal, caplog) -> None:
    async def scenario(bench: TemporalBench) -> None:
        engine = engine_of(await bench.start())
        errors: list[BaseException] = [StoreError("busy"), CommitUnknown("lost")]

        async def count_pass() -> None:
            raise errors.pop(0)

        waiting = asyncio.ensure_future(engine.wait("x"))
        await asyncio.sleep(0)
        failing = patched(type(engine._run_starter), run_pass=lambda _self: count_pass())
        with failing, pytest.raises(CommitUnknown):
            await engine.join()
        with pytest.raises(CommitUnknown):
            await waiting
        assert not engine.accepts
        assert "cannot read due operations: busy" in caplog.text
        await bench.planes.pop().engine.stop()

    run_on_temporal(temporal.address, scenario)


def test_whatever_ends_its_tasks_ends_the_engine(temporal) -> None:
    async def scenario(bench: TemporalBench) -> None:
        first, second = engine_of(await bench.start()), engine_of(await bench.start())
        assert first._maintenance_task is not None
        first._maintenance_task.cancel()
        with pytest.raises(Defect, match="cancelled from outside"):
            await first.join()

        async def run() -> None:
            raise RuntimeError("poll failure")

        broken: Any = SimpleNamespace(run=run)
        await second._run_worker(broken)
        with pytest.raises(EngineError, match="the Temporal worker stopped: poll failure"):
            await second.join()

    run_on_temporal(temporal.address, scenario)


def test_a_worker_that_gave_up_while_temporal_was_away_is_begun_again(temporal) -> None:
    """As when its namespace was gone, and is back."""

    async def scenario(bench: TemporalBench) -> None:
        engine = engine_of(await bench.start())
        told = ["Temporal cannot be used (no such namespace)", "nor now", ""]
        ran: list[str] = []

        async def run() -> None:
            ran.append("gave up")
            raise RuntimeError("poll failure")

        async def runs() -> None:
            ran.append("works")

        async def away(*_: object) -> str:
            return told.pop(0) if told else ""

        broken: Any = SimpleNamespace(run=run)
        whole: Any = SimpleNamespace(run=runs, shutdown=runs)
        kept = engine._worker

        async def unseen(_: object) -> None:
            """The relay asks too, and would be answered in our place."""

        ours = patched(type(engine), _make_worker=lambda *_: whole, _probe=unseen)
        with patched(temporal_engine, find_outage=away), ours:
            await engine._run_worker(broken)
        assert (ran, engine._worker, engine.accepts) == (["gave up", "works"], whole, True)
        engine._worker = kept

    run_on_temporal(temporal.address, scenario)


def test_what_a_killed_embedded_engine_held_is_taken_over_by_temporal_beside_it(temporal) -> None:
    async def scenario(bench: TemporalBench) -> None:
        plane = await bench.start()
        engine, store = engine_of(plane), plane.store
        await engine.stop()  # so that its own relay does not look meanwhile
        taken: list[None] = []

        async def take(_: object) -> None:
            taken.append(None)

        with patched(type(engine), _take_over=take):
            engine._embedded_checked_at = -1e9
            await engine._take_over_from_embedded()
            assert not taken, "there is nobody else"
            lease: Row = {"holder": "other", "token": 1, "until": 0.0}
            await store.commit(Change("", (), (Put("lease", ("worker/other",), lease),)))
            await engine._take_over_from_embedded()
            assert not taken, "not so soon"
            for there in (True, False):
                engine._embedded_checked_at = -1e9
                if not there:
                    await store.commit(Change("", (), (Drop("lease", ("worker/other",)),)))
                await engine._take_over_from_embedded()
            assert len(taken) == 2

    run_on_temporal(temporal.address, scenario)


def test_what_is_asked_of_an_engine_that_has_stopped_does_nothing(temporal) -> None:
    async def scenario(bench: TemporalBench) -> None:
        plane = await bench.start()
        engine, live = engine_of(plane), SimpleNamespace(worker="", id="x")
        await engine.stop()
        await engine.stop()
        given: Any = live
        engine.execute(given)
        engine.wake("x")
        engine.on_notification("x", interrupt=True)
        await engine._runs.start("x", RunLabels("kind", "agent", ""), None)
        assert not await engine._runs.is_elsewhere("x")
        await engine._runs.signal("x", interrupt=False)
        assert not engine._background
        await engine.join()

    run_on_temporal(temporal.address, scenario)


def test_who_waits_in_another_process_is_told_when_it_hears_of_the_end(temporal) -> None:
    async def scenario(bench: TemporalBench) -> None:
        plane = await bench.start()
        other = engine_of(await bench.start(executes_operations=False))
        name = await accept(plane, "linear")
        waiting = asyncio.ensure_future(other.wait(name, 30))
        unknown = asyncio.ensure_future(other.wait("nobody", 0.2))
        await asyncio.sleep(0)
        other.on_notification("nobody")
        assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
        other.on_notification(name)
        assert await waiting is OperationState.SUCCEEDED
        assert await unknown is None
        plane.engine.wake(name)  # it has ended: its run is told, if there is one
        plane.engine.wake("nobody")
        await eventually(lambda: not engine_of(plane)._background)

    run_on_temporal(temporal.address, scenario)


def test_what_cannot_be_asked_now_is_left_to_the_relay(temporal, caplog) -> None:
    async def scenario(bench: TemporalBench) -> None:
        engine = engine_of(await bench.start())

        async def fails(error: BaseException) -> None:
            raise error

        for error in (EngineError("away"), ValueError("odd"), StaleToken("x")):
            engine._run_in_background(fails(error))
        await eventually(lambda: not engine._background)
        assert "away; the run starter tries again" in caplog.text
        assert "a run was not started or woken" in caplog.text
        assert engine.accepts
        engine._run_in_background(fails(CommitUnknown("lost")))
        with pytest.raises(CommitUnknown):
            await engine.join()

    run_on_temporal(temporal.address, scenario)


def test_calls_that_do_not_end_are_left_to_themselves(temporal, caplog) -> None:
    async def scenario(bench: TemporalBench) -> None:
        engine = engine_of(await bench.start())

        async def never() -> None:
            await asyncio.Event().wait()

        deaf: Any = SimpleNamespace(shutdown=never)
        with patched(temporal_engine, CANCEL_GRACE_SECONDS=0.05):
            polling = asyncio.ensure_future(never())
            await engine._shut_down(deaf, polling, 0.01)
        assert "some cancelled calls have not ended" in caplog.text
        polling.cancel()

    run_on_temporal(temporal.address, scenario)


def test_what_an_embedded_engine_left_is_claimed_page_by_page(temporal) -> None:
    async def scenario(bench: TemporalBench) -> None:
        plane = await bench.start(executes_operations=False)
        names = [await accept(plane, "linear") for _ in range(3)]
        await bench.stop(plane)
        rows = bench.tables.rows["operation"]
        for name in names:
            rows[name,]["worker"] = "an embedded engine that is gone"
        with patched(temporal_engine, CLAIM_MAX=1):
            again = await bench.start()
        for name in names:
            assert await wait_for_end(again, name) is OperationState.SUCCEEDED

    run_on_temporal(temporal.address, scenario)


# --- namespaces -----------------------------------------------------------------------------------


async def with_namespace(address: str, name: str, *, is_deprecated: bool = False) -> None:
    service = (await connect(TemporalSettings(address=address))).workflow_service
    request = RegisterNamespaceRequest(namespace=name)
    request.workflow_execution_retention_period.FromSeconds(86_400)
    await service.register_namespace(request)
    if is_deprecated:
        await service.deprecate_namespace(DeprecateNamespaceRequest(namespace=name))

    async def is_known() -> bool:
        try:
            await connect(TemporalSettings(address=address, namespace=name))
        except EngineError:
            return False
        return True

    await eventually(is_known)


def test_a_namespace_that_is_given_up_is_named(temporal) -> None:
    async def main() -> str:
        await with_namespace(temporal.address, "old", is_deprecated=True)
        with pytest.raises(EngineError) as raised:
            await probe(TemporalSettings(address=temporal.address, namespace="old"))
        return str(raised.value)

    assert "namespace 'old' is deprecated; name another" in asyncio.run(main())


def test_who_asks_for_work_counts_and_who_did_is_told_with_the_time(temporal) -> None:
    async def scenario(bench: TemporalBench) -> None:
        settings, clock = engine_of(await bench.start())._settings, SystemClock()
        queue = f"task queue {settings.task_queue!r}"
        told = ""
        async with asyncio.timeout(120):
            while not told:
                with suppress(EngineError):  # it has not asked yet
                    told = await probe_workers(settings, clock.now())
        assert told.startswith(f"1 worker asks for work at {queue}, the last ")
        with pytest.raises(EngineError) as raised:
            await probe_workers(settings, clock.now() + POLLER_TTL_SECONDS + 30)
        assert f"no worker has asked for work at {queue} since " in str(raised.value)

    run_on_temporal(temporal.address, scenario)


def test_a_namespace_that_is_there_no_more_or_does_not_answer_is_away(temporal) -> None:
    async def main() -> None:
        settings = TemporalSettings(address=temporal.address)
        client = await connect(settings)
        assert await find_outage(client, settings) == ""
        gone = await find_outage(client, replace(settings, namespace="elsewhere"))
        assert gone.startswith("Temporal cannot be used (Namespace elsewhere is not found")
        deaf = await find_outage(client, replace(settings, connect_seconds=1e-9))
        assert deaf == "Temporal cannot be reached (no answer within 1e-09 s)"

    asyncio.run(main())


def test_a_namespace_that_has_lost_its_search_attributes_gets_them_again(temporal) -> None:
    asked: list[str] = []

    async def register_nothing(client: Any, settings: TemporalSettings) -> bool:
        asked.append(settings.namespace)
        return len(asked) == 1 or await register_attributes(client, settings)

    async def scenario(bench: TemporalBench) -> None:
        await with_namespace(temporal.address, "bare")
        at_start = patched(temporal_engine, register_attributes=register_nothing)
        at_run = patched(temporal_runs, register_attributes=register_nothing)
        with at_start, at_run:
            plane = await bench.start()
            name = await accept(plane, "linear")
            assert await wait_for_end(plane, name) is OperationState.SUCCEEDED
        assert asked == ["bare", "bare"]
        assert engine_of(plane)._runs.has_attributes

    run_on_temporal(temporal.address, scenario, namespace="bare")
