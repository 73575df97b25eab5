"""A plane's processes learn of a new epoch, remember the audit log, and tell nobody while held."""

import asyncio

from tenure.app.leader import lease_of
from tenure.app.safety import epochs
from tenure.app.tenancy import tokens
from tenure.core.errors import StoreFull
from tenure.core.records import AuditRecord, LeaseRecord
from tenure.core.roles import Caller, Role
from tenure.home.epoch_file import EpochFile
from tenure.ports.epoch import Memo
from tenure.ports.plane_rows import PLANE_ROW
from tenure.ports.store import Change, Set
from tenure.reconcilers import epoch
from tenure.settings import Settings
from tenure.wiring import run_agent_plane
from tests.unit.support.agent_planes import agent_test

ADMIN = Caller(tokens.PLANE_TENANT, "admin", Role.ADMIN)


async def until(true, seconds=30.0):
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 (a file or a lease tells no one)
            await asyncio.sleep(0.01)


async def leading(plane):
    return await plane.store.find(LeaseRecord, lease_of("relay"))


def position(file):
    memo = file.read()
    return memo.position if memo else 0


def test_a_running_process_lets_go_when_another_has_begun_an_epoch(tmp_path):
    async def main():
        settings = Settings(home=str(tmp_path), reconcile_seconds=0.05, sandbox="off")
        async with run_agent_plane(settings) as plane:
            assert plane.engine.accepts
            later = Set("plane", PLANE_ROW, {"epoch": 2, "held": "restored elsewhere"})
            await plane.store.commit(Change("", (), (later,)))
            await until(lambda: plane.pause.why)
            await until(lambda: not plane.engine.accepts)
            assert plane.pause.epoch == 2

    asyncio.run(main())


def test_the_end_of_the_audit_log_is_remembered_while_it_runs_and_at_the_end(tmp_path):
    async def main():
        settings = Settings(home=str(tmp_path), reconcile_seconds=0.05, sandbox="off")
        file = EpochFile(tmp_path)
        async with run_agent_plane(settings) as plane:
            await tokens.create_token(plane, ADMIN, principal="one", role=Role.VIEWER)
            kept = await plane.store.count_rows(AuditRecord, {})
            await until(lambda: position(file) == kept)
            await tokens.create_token(plane, ADMIN, principal="two", role=Role.VIEWER)
        assert position(file) == kept + 1

    asyncio.run(main())


def test_nothing_leaves_a_plane_that_is_held(tmp_path):
    EpochFile(tmp_path).write(Memo(2, "restored"))

    async def main():
        settings = Settings(home=str(tmp_path), reconcile_seconds=0.05, sandbox="off")
        async with run_agent_plane(settings) as plane:
            assert plane.pause.why
            await asyncio.sleep(0.3)
            assert await leading(plane) is None
            free = Set("plane", PLANE_ROW, {"held": None})
            await plane.store.commit(Change("", (), (free,)))
            async with asyncio.timeout(30):
                while await leading(plane) is None:  # noqa: ASYNC110 (as above)
                    await asyncio.sleep(0.05)

    asyncio.run(main())


@agent_test
async def test_a_look_that_fails_is_tried_again_and_an_end_that_cannot_be_kept_is_said(
    harness, monkeypatch, caplog
):
    failures: list[Exception] = [ZeroDivisionError("a bug")]
    noted: list[float] = []

    async def note(_):
        noted.append(harness.plane.store.now())
        if failures:
            raise failures.pop()

    monkeypatch.setattr(epochs, "record_audit_head", note)
    async with epoch.following(harness.plane, clock=harness.clock, seconds=10.0):
        await asyncio.sleep(35)
        assert "could not be checked; next attempt in 10 s" in caplog.text
        assert len(noted) >= 3
        failures.append(StoreFull("there is no room"))
    assert "was not written: there is no room" in caplog.text
