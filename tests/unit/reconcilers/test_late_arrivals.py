"""What arrives at a provider after its key was burned is removed again, and then forgotten."""

import asyncio

from tenure.app.agents import commands as agents
from tenure.app.agents.spec import read_spec
from tenure.app.operations import reads, tombstones
from tenure.core.errors import Unavailable
from tenure.core.operation import OperationState
from tenure.core.records import TombstoneRecord
from tenure.core.roles import Caller, Role
from tenure.ports.provider import Observation, OwnedResource, Presence
from tenure.ports.runtime import Status
from tenure.ports.store import Change, Put, Row
from tenure.reconcilers import driver, late_arrivals
from tenure.reconcilers.passes import Pass, Tick
from tenure.settings import Settings
from tenure.wiring import run_agent_plane

CALLER = Caller("default", "someone", Role.ADMIN)
SPEC = read_spec({"name": "alpha", "runtime": {"command": ["agent"]}})


class Unburning:
    """A runtime of the kind that is out there: it takes a key again that was removed."""

    zones = ("here",)

    def __init__(self):
        self.held = {}
        self.away = False

    async def digest(self, spec):
        return spec

    async def ensure(self, key, spec):
        self.held[key.text] = key
        return {"address": "127.0.0.1:1"}

    async def inspect(self, key):
        if self.away:
            raise Unavailable("away")
        there = key.text in self.held
        return Observation(Presence.READY if there else Presence.ABSENT, {"address": "127.0.0.1:1"})

    async def remove(self, key):
        self.held.pop(key.text, None)

    async def list_owned(self, plane):
        for key in self.held.values():
            yield OwnedResource(key.text, key.agent, key.generation, 0.0)

    async def status(self, key):
        return Status((await self.inspect(key)).presence)

    async def wait_ready(self, key, *, seconds):
        return await self.status(key)


async def create_and_delete(plane):
    """An agent that was created and deleted; the key its runtime had."""
    await assert_succeeds(plane, await agents.create_agent(plane, CALLER, SPEC))
    (key,) = plane.providers["runtime"].held.values()
    await assert_succeeds(plane, await agents.delete_agent(plane, CALLER, "alpha"))
    return key


async def assert_succeeds(plane, operation):
    ended = await reads.wait(plane, "default", operation.id, seconds=30)
    assert ended.state is OperationState.SUCCEEDED, ended.error


def run(tmp_path, scenario, seconds=1000.0):
    async def main():
        runtime = Unburning()
        settings = Settings(home=str(tmp_path / "home"), reconcile_seconds=seconds)
        async with run_agent_plane(settings, provider_overrides={"runtime": runtime}) as plane:
            await scenario(plane, runtime)

    asyncio.run(main())


def test_what_arrives_late_is_removed_by_its_key(tmp_path):
    async def scenario(plane, runtime):
        key = await create_and_delete(plane)
        assert runtime.held == {}
        await runtime.ensure(key, {})
        assert await late_arrivals.tick(plane) == Tick(seen=4, fixed=1)
        assert runtime.held == {}
        assert (await late_arrivals.tick(plane)).fixed == 0

    run(tmp_path, scenario)


def test_a_key_is_watched_until_the_window_is_over_and_it_was_absent_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(tombstones, "LATE_SECONDS", 0.0)

    async def scenario(plane, runtime):
        key = await create_and_delete(plane)
        assert (await late_arrivals.tick(plane)).seen == 4
        await runtime.ensure(key, {})  # between the two sightings: they begin anew
        assert await late_arrivals.tick(plane) == Tick(4, 1)
        assert (await late_arrivals.tick(plane)).seen == 1
        assert (await late_arrivals.tick(plane)).seen == 1
        assert (await late_arrivals.tick(plane)).seen == 0

    run(tmp_path, scenario)


def test_before_the_window_is_over_nothing_is_forgotten(tmp_path):
    async def scenario(plane, runtime):
        await create_and_delete(plane)
        for _ in range(5):
            assert (await late_arrivals.tick(plane)).seen == 4

    run(tmp_path, scenario)


def test_a_provider_that_does_not_answer_is_asked_again(tmp_path, monkeypatch):
    monkeypatch.setattr(tombstones, "LATE_SECONDS", 0.0)

    async def scenario(plane, runtime):
        key = await create_and_delete(plane)
        await runtime.ensure(key, {})
        runtime.away = True
        for _ in range(3):
            await late_arrivals.tick(plane)
        assert key.text in runtime.held
        runtime.away = False
        assert await late_arrivals.tick(plane) == Tick(1, 1)

    run(tmp_path, scenario)


def test_the_driver_looks_by_itself_and_outlives_a_failure(tmp_path, monkeypatch):
    ticks = []

    async def tick(plane, **_):
        ticks.append(plane)
        if len(ticks) == 1:
            raise Unavailable("not now")
        if len(ticks) == 2:
            raise ZeroDivisionError
        return Tick()

    async def scenario(plane, runtime):
        async with asyncio.timeout(30):
            while len(ticks) < 4:  # noqa: ASYNC110 (it has nothing to wait for)
                await asyncio.sleep(0.01)
        assert plane.reconcile_state.counts["late"].failed == 2

    monkeypatch.setattr(late_arrivals, "tick", tick)
    monkeypatch.setattr(driver, "SOON_SECONDS", 0.01)
    run(tmp_path, scenario, seconds=0.01)


def test_a_tombstone_whose_operation_is_not_known_is_forgotten(tmp_path):
    async def scenario(plane, runtime):
        row: Row = {"until": 0.0, "sightings": 0}
        stone = Put("tombstone", ("0" * 32, "runtime"), row)
        await plane.store.commit(Change("", (), (stone,)))
        held = Pass(plane, "late", read_only=True)
        assert await late_arrivals.tick(plane, this_pass=held) == Tick(1, 0)
        assert await plane.store.count_rows(TombstoneRecord, {}) == 1
        assert await late_arrivals.tick(plane) == Tick(1, 0)
        assert await plane.store.count_rows(TombstoneRecord, {}) == 0

    run(tmp_path, scenario)
