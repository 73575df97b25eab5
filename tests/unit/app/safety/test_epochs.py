"""An older store is noticed, whoever put it there; and what holds a plane holds all of it."""

import asyncio
import shutil
import sqlite3
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from proofs.agents.lifecycle import FakeCredentials
from tenure.app.events.cloudevents import outgoing
from tenure.app.operations.admission import OperationRequest, accept
from tenure.app.operations.reads import wait
from tenure.app.safety import epochs
from tenure.app.safety.pause import GENERATIONS_PER_EPOCH, Pause
from tenure.app.tenancy import audit, tokens
from tenure.core.errors import (
    Conflict,
    Forbidden,
    Invalid,
    StoreError,
    Unauthenticated,
    Unavailable,
)
from tenure.core.operation import OperationState
from tenure.core.plan import Plan
from tenure.core.records import AgentRecord, PlaneRecord, TombstoneRecord
from tenure.core.roles import Caller, Role
from tenure.home.epoch_file import EpochFile
from tenure.plans.steps import provided
from tenure.ports.epoch import Memo
from tenure.ports.store import Change, Put, Set
from tenure.reconcilers import drift, late_arrivals
from tenure.settings import Settings
from tenure.testing.faults import Fault
from tenure.testing.patches import patched
from tenure.testing.shelf import Shelf
from tenure.wiring import run_agent_plane, run_plane
from tenure_agent import Inbox, Outcome
from tests.unit.support.agent_planes import agent_test, fault, override_verbs

ADMIN = Caller("default", "ada", Role.ADMIN)
PLAN = Plan("onboard", stages=(provided("identity", "identity"),))


@asynccontextmanager
async def plane_in(home):
    shelf = Shelf(home / "shelf", "identity", now=lambda: 0.0)
    async with run_plane(
        Settings(store=str(home / "tenure.db")),
        plans=[PLAN],
        providers={"identity": shelf},
        pause=Pause(EpochFile(home)),
    ) as plane:
        yield plane


async def say(plane, action):
    told = audit.audit_line(ADMIN, action, target="", now=0.0)
    await plane.store.commit(Change("", (), (told,)))


def memo(home):
    return EpochFile(home).read()


def test_the_first_epoch_is_one_and_is_written_down(tmp_path):
    async def main():
        async with plane_in(tmp_path) as plane:
            assert (plane.pause.epoch, plane.pause.why) == (1, "")
            assert (await plane.store.find(PlaneRecord, ("this",))).epoch == 1

    asyncio.run(main())
    assert memo(tmp_path) == Memo()
    assert (tmp_path / "epoch").stat().st_mode & 0o777 == 0o600


def test_an_older_copy_of_the_store_that_somebody_put_back_holds_the_plane(tmp_path):
    async def first():
        async with plane_in(tmp_path) as plane:
            _, token = await tokens.create_token(plane, ADMIN, principal="a", role=Role.ADMIN)
            done = await accept(plane, OperationRequest("onboard", target="one"))
            await wait(plane, "default", done.id)
            await plane.store.backup(str(tmp_path / "copy.db"))
            await say(plane, "later")
            await epochs.record_audit_head(plane)
            return token

    async def second(token):
        async with plane_in(tmp_path) as plane:
            assert plane.pause.epoch == 2
            assert "line 2 of the audit log" in plane.pause.why
            assert not plane.engine.worker, "nothing moves"
            with pytest.raises(Unauthenticated, match="before the plane was restored"):
                await tokens.authenticate(plane, token)
            agent = await plane.store.find(AgentRecord, ("one",))
            assert agent.generation == 2_000_001, "no key is derived twice"
            await epochs.confirm(plane, ADMIN)
            while not plane.engine.worker:  # noqa: ASYNC110 (it has no event for this)
                await asyncio.sleep(0)
            done = await accept(plane, OperationRequest("onboard", target="one"))
            assert (await wait(plane, "default", done.id)).state is OperationState.SUCCEEDED

    async def third():
        async with plane_in(tmp_path) as plane:
            assert (plane.pause.epoch, plane.pause.why) == (2, "")
            assert plane.engine.worker

    token = asyncio.run(first())
    shutil.copy(tmp_path / "copy.db", tmp_path / "tenure.db")
    asyncio.run(second(token))
    asyncio.run(third())


def test_what_is_told_after_a_restore_is_later_than_what_was_told_before_it(tmp_path):
    inbox = Inbox(sqlite3.connect(tmp_path / "inbox.db"))

    async def read_audit(plane, *, after=0):
        done = await accept(plane, OperationRequest("onboard", target="one"))
        await wait(plane, "default", done.id)
        rows = await plane.store.list_events(after=after, limit=1_000)
        events = [msgspec.json.decode(outgoing(plane.id, row).body) for row in rows]
        seen = {inbox.apply(event, lambda *_: None) for event in events}
        return seen, rows[-1].position

    async def first():
        async with plane_in(tmp_path) as plane:
            _, last = await read_audit(plane)
            await plane.store.backup(str(tmp_path / "copy.db"))
            await say(plane, "later")
            seen, _ = await read_audit(plane, after=last)
            assert seen == {Outcome.APPLIED}
            await epochs.record_audit_head(plane)
            return last

    async def second(last):
        async with plane_in(tmp_path) as plane:
            await epochs.confirm(plane, ADMIN)
            while not plane.engine.worker:  # noqa: ASYNC110 (it has no event for this)
                await asyncio.sleep(0)
            seen, _ = await read_audit(plane, after=last)
            assert seen == {Outcome.APPLIED}

    last = asyncio.run(first())
    shutil.copy(tmp_path / "copy.db", tmp_path / "tenure.db")
    asyncio.run(second(last))


def test_a_plane_stays_held_over_a_restart_until_it_is_confirmed(tmp_path):
    EpochFile(tmp_path).write(Memo(4, "restored"))

    async def main():
        async with plane_in(tmp_path) as plane:
            assert (plane.pause.epoch, plane.pause.why) == (4, "restored")
            assert not plane.engine.worker

    asyncio.run(main())
    asyncio.run(main())


def test_a_greater_epoch_in_the_store_is_taken_over_with_what_holds_it(tmp_path):
    async def main():
        async with plane_in(tmp_path) as plane:
            return plane.pause.epoch, plane.pause.why

    EpochFile(tmp_path).write(Memo(7, "restored"))
    asyncio.run(main())
    (tmp_path / "epoch").unlink()
    assert asyncio.run(main()) == (7, "restored")
    assert memo(tmp_path).epoch == 7


def test_a_process_that_learns_of_a_later_epoch_holds_itself(tmp_path):
    async def main():
        async with plane_in(tmp_path) as plane:
            assert not await epochs.follow_epoch(plane)
            raised = Set("plane", ("this",), {"epoch": 2, "held": "restored"})
            await plane.store.commit(Change("", (), (raised,)))
            assert await epochs.follow_epoch(plane)
            assert (plane.pause.epoch, plane.pause.must_restart) == (2, True)
            assert not await epochs.follow_epoch(plane), "once"
            with pytest.raises(Conflict, match="restart this process"):
                await epochs.confirm(plane, ADMIN)
            assert memo(tmp_path).epoch == 1, "who restores writes the file, not who is told"

    asyncio.run(main())


def test_a_process_that_is_held_is_let_go_when_another_was_told_so(tmp_path):
    EpochFile(tmp_path).write(Memo(2, "restored"))

    async def main():
        async with plane_in(tmp_path) as plane:
            assert not await epochs.follow_epoch(plane)
            assert plane.pause.why
            free = Set("plane", ("this",), {"held": None})
            await plane.store.commit(Change("", (), (free,)))
            assert not await epochs.follow_epoch(plane)
            assert not plane.pause.why
            while not plane.engine.worker:  # noqa: ASYNC110 (it has no event for this)
                await asyncio.sleep(0)

    asyncio.run(main())


def test_only_an_admin_of_the_plane_confirms_and_only_what_is_held(tmp_path):
    async def main():
        async with plane_in(tmp_path) as plane:
            with pytest.raises(Conflict, match="not paused"):
                await epochs.confirm(plane, ADMIN)
            for other in (ADMIN._replace(tenant="acme"), ADMIN._replace(role=Role.OPERATOR)):
                with pytest.raises(Forbidden):
                    await epochs.confirm(plane, other)
                with pytest.raises(Forbidden):
                    await epochs.review(plane, other)

    asyncio.run(main())


@agent_test
async def test_a_review_says_who_is_started_again_and_who_was_suspended(harness):
    uids = {name: await harness.create_ready(name) for name in ("gone", "shut", "dead", "runs")}
    for uid in (uids["gone"], uids["shut"], uids["dead"]):
        for thing in harness.world.holds(agent=uid):
            if thing.provider == "runtime" or uid == uids["gone"]:
                del harness.world.things[thing.provider, thing.key.text]
    harness.fakes.credentials.door.stands[uids["shut"]] = (1, True)
    seen = await epochs.review(harness.plane, ADMIN)
    assert [one.name for one in seen.started] == ["dead"]
    assert [one.name for one in seen.shut] == ["shut"]
    assert {one.name for one in seen.missing} == {"gone", "shut", "dead"}

    async def nobody(*_):
        raise TimeoutError

    with patched(FakeCredentials, is_open=nobody):
        seen = await epochs.review(harness.plane, ADMIN)
    assert seen.silent == ["credentials: no answer in time"]
    assert [one.name for one in seen.untold] == ["shut", "dead", "runs"]
    assert (seen.untold_agents, seen.started, seen.shut) == (3, [], [])


def lose_resource(harness, uid, slot):
    (thing,) = harness.world.holds(provider=slot, agent=uid)
    del harness.world.things[slot, thing.key.text]


def kill_runtime(harness, uid):
    (thing,) = harness.world.holds(provider="runtime", agent=uid)
    harness.fakes.runtime.stopped.add(thing.key.text)


def close_agent(harness, uid):
    harness.fakes.credentials.door.stands[uid] = (1, True)


def foreign(harness, uid, slot):
    (thing,) = harness.world.holds(provider=slot, agent=uid)
    thing.owner = "another"


def restore_runtime(harness, uid):
    harness.disk.tables.rows["agent"][uid,].update(generation=2 * GENERATIONS_PER_EPOCH + 1)


def worked_on(harness, uid):
    harness.disk.tables.rows["agent"][uid,].update(operation="0" * 32)


def mute(harness, uid, slot):
    """One provider says nothing of this agent."""
    provider = harness.plane.providers[slot]
    inspect = provider.inspect

    async def nothing(key):
        if key.agent == uid:
            raise Unavailable("away")
        return await inspect(key)

    provider.inspect = nothing


HAPPENED: dict[str, tuple[Any, ...]] = {
    "runs": (),
    "died": (kill_runtime,),
    "gone": (partial(lose_resource, slot="runtime"),),
    "shut": (close_agent,),
    "shut and died": (close_agent, kill_runtime),
    "deleted": (partial(lose_resource, slot="runtime"), partial(lose_resource, slot="access")),
    "died, a client gone": (kill_runtime, partial(lose_resource, slot="identity")),
    "died, a grant another's": (kill_runtime, partial(foreign, slot="access")),
    "died, one silent": (kill_runtime, partial(mute, slot="access")),
    "died, restored, one silent": (kill_runtime, restore_runtime, partial(mute, slot="access")),
    "died, worked on": (kill_runtime, worked_on),
    "runtime silent": (partial(mute, slot="runtime"),),
    "runs, one silent": (partial(mute, slot="access"),),
}
"""What may have happened to agents, of whom a review then says what drift will do."""


@agent_test
async def test_a_review_says_what_drift_then_does(harness):
    uids = {
        what: await harness.create_ready(f"a{number:02}") for number, what in enumerate(HAPPENED)
    }
    had = {thing.key.text for thing in harness.world.holds(provider="runtime")}
    for what, all_of_it in HAPPENED.items():
        for happens in all_of_it:
            happens(harness, uids[what])
    whats = {uid: what for what, uid in uids.items()}
    seen = await epochs.review(harness.plane, ADMIN)
    told = {
        name: [whats[one.agent] for one in getattr(seen, name)]
        for name in ("started", "shut", "untold")
    }
    assert told == {
        "started": ["died", "gone", "died, one silent"],
        "shut": ["shut", "shut and died"],
        "untold": [
            "died, a client gone",
            "died, a grant another's",
            "died, restored, one silent",
            "runtime silent",
        ],
    }
    for _ in range(2 * drift.SIGHTINGS - 1):
        await drift.tick(harness.plane)
        await asyncio.sleep(drift.SOON_SECONDS)
    new = {
        thing.key.agent
        for thing in harness.world.holds(provider="runtime")
        if thing.key.text not in had
    }
    made_again = {uids["died, a client gone"]}  # its client first, and then it could be told
    assert new == {uids[what] for what in told["started"]} | made_again


@agent_test
async def test_a_review_waits_twice_for_a_provider_that_hangs_and_no_longer(harness):
    for number in range(6):
        await harness.create_ready(f"a{number:02}")

    async def hangs(*_):
        await asyncio.sleep(1e6)

    began = harness.plane.store.now()
    with patched(epochs, AT_ONCE=1), override_verbs(harness, "runtime", inspect=hangs):
        seen = await epochs.review(harness.plane, ADMIN)
    assert harness.plane.store.now() - began < 3 * epochs.CALL_SECONDS
    assert seen.untold_agents == 6
    assert seen.silent == ["runtime: no answer in time"]


@agent_test
async def test_one_agent_that_hangs_does_not_keep_a_review_from_the_others(harness):
    uids = [await harness.create_ready(f"a{number:02}") for number in range(3)]
    ask = harness.plane.providers["credentials"].is_open

    async def hangs(tenant, agent):
        if agent == uids[0]:
            await asyncio.sleep(1e6)
        return await ask(tenant, agent)

    close_agent(harness, uids[2])
    with patched(epochs, AT_ONCE=1), override_verbs(harness, "credentials", is_open=hangs):
        seen = await epochs.review(harness.plane, ADMIN)
    assert [one.agent for one in seen.untold] == uids[:1]
    assert [one.agent for one in seen.shut] == uids[2:]


@agent_test
async def test_a_provider_that_cannot_be_listed_is_told(harness):
    await harness.create_ready()
    fault(harness, "access", "list_owned", Fault.BUSY)
    seen = await epochs.review(harness.plane, ADMIN)
    assert [one.partition(":")[0] for one in seen.silent] == ["access"]
    assert (seen.untold, seen.missing) == ([], [])


def test_a_reconciler_only_looks_while_the_plane_is_held(tmp_path):
    async def main():
        async with plane_in(tmp_path) as plane:
            name = (await accept(plane, OperationRequest("onboard", target="one"))).id
            done = await wait(plane, "default", name)
            until = {"until": 0.0, "sightings": 0}
            await plane.store.commit(Change("", (), (Put("tombstone", (name, "identity"), until),)))
            plane.pause.memo = plane.pause.memo._replace(pause_reason="restored")
            assert (await late_arrivals.tick(plane)).fixed == 0
            shelf = plane.providers["identity"]
            assert len(shelf.list_keys()) == 1, "what would be removed is there"
            assert (await plane.store.find(TombstoneRecord, (name, "identity"))).absences == 0
            plane.pause.memo = plane.pause.memo._replace(pause_reason="")
            assert (await late_arrivals.tick(plane)).fixed == 1
            assert shelf.list_keys() == []
            assert done.state is OperationState.SUCCEEDED

    asyncio.run(main())


def test_a_home_in_which_a_restore_was_interrupted_does_not_start(tmp_path):
    EpochFile(tmp_path).write(Memo(2, "restored", restoring="backup"))

    async def main():
        async with run_agent_plane(Settings(home=str(tmp_path))):
            pytest.fail("it must not start")

    with pytest.raises(Invalid, match="tenure restore again"):
        asyncio.run(main())
    assert not (tmp_path / "tenure.db").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"epoch": 0}', '{"epoch": "x"}', '{"odd": 1}'])
def test_an_epoch_that_makes_no_sense_is_refused(tmp_path, text):
    (tmp_path / "epoch").write_text(text)
    with pytest.raises(StoreError, match="tenure restore --hold"):
        memo(tmp_path)


def test_what_one_process_remembers_does_not_fall_by_another(tmp_path):
    EpochFile(tmp_path).write(Memo())
    one, other = Pause(EpochFile(tmp_path)), Pause(EpochFile(tmp_path))

    async def main():
        await one.update_memo(position=9, head="nine")
        await other.update_memo(position=5, head="five")
        assert memo(tmp_path) == Memo(position=9, head="nine")
        await other.update_memo(epoch=2, pause_reason="restored", position=0, head="")
        await one.update_memo(position=12, head="twelve")
        assert memo(tmp_path) == Memo(2, "restored")

    asyncio.run(main())


def test_a_confirmation_that_cannot_be_written_down_is_followed_once_it_can(tmp_path):
    EpochFile(tmp_path).write(Memo(2, "restored"))

    async def main():
        async with plane_in(tmp_path) as plane:
            (tmp_path / "epoch").unlink()
            (tmp_path / "epoch").mkdir()
            with pytest.raises(StoreError, match="Is a directory"):
                await epochs.confirm(plane, ADMIN)
            assert plane.pause.why == "restored"
            (tmp_path / "epoch").rmdir()
            assert not await epochs.follow_epoch(plane)
            assert (plane.pause.why, plane.pause.confirmation.is_set()) == ("", True)

    asyncio.run(main())
