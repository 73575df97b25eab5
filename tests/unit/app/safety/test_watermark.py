"""A store that lacks the watermark of its home is older than it was; no other one is refused."""

import asyncio

import pytest

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.store.postgres.replication import Standby, assess
from tenure.app.safety import epochs, watermark
from tenure.app.safety.pause import Pause
from tenure.core.errors import StoreError, StoreRewound
from tenure.core.records import PlaneRecord
from tenure.home.epoch_file import EpochFile
from tenure.home.watermark_file import WatermarkFile
from tenure.ports.epoch import Memo, Watermark
from tenure.ports.store import Change, Set
from tenure.reconcilers import epoch
from tenure.settings import Settings
from tenure.testing.patches import patched
from tenure.wiring import run_plane


def with_plane(home, scenario):
    """What this makes of a plane of this home."""

    async def main():
        hold = Pause(EpochFile(home), WatermarkFile(home))
        settings = Settings(store=str(home / "tenure.db"))
        async with run_plane(settings, plans=[], providers={}, pause=hold) as plane:
            return await scenario(plane)

    return asyncio.run(main())


async def row_of(plane):
    return (await plane.store.find(PlaneRecord, watermark.ROW)).text


async def put_back(plane, name):
    await plane.store.commit(Change("", (), (Set("plane", watermark.ROW, {"name": name}),)))


def test_a_store_that_lacks_the_watermark_is_noticed_and_the_times_are_told(tmp_path):
    async def scenario(plane):
        assert await watermark.find_missing(plane) == ""
        await watermark.raise_watermark(plane)
        older = await row_of(plane)
        await watermark.raise_watermark(plane)
        assert await watermark.find_missing(plane) == ""
        assert plane.pause.read_watermark().number == 2
        await put_back(plane, older)
        return await watermark.find_missing(plane)

    why = with_plane(tmp_path, scenario)
    assert why.startswith("the store lacks the watermark that was committed to it at 20")
    assert "the newest that it has is of 20" in why


def test_a_store_that_has_counted_on_elsewhere_is_noticed(tmp_path):
    async def scenario(plane):
        await watermark.raise_watermark(plane)
        await put_back(plane, "3:1.000:c 2:1.000:b 1:1.000:a")
        return await watermark.find_missing(plane)

    assert with_plane(tmp_path, scenario)


def test_a_watermark_that_is_too_old_to_be_listed_says_nothing(tmp_path):
    async def scenario(plane):
        await watermark.raise_watermark(plane)
        await put_back(plane, "9:1.000:c 8:1.000:b")
        return await watermark.find_missing(plane)

    assert with_plane(tmp_path, scenario) == ""


def test_no_more_watermarks_are_listed_than_the_bound(tmp_path):
    async def scenario(plane):
        with patched(watermark, LISTED_MAX=3):
            for _ in range(5):
                await watermark.raise_watermark(plane)
        return await row_of(plane)

    listed = with_plane(tmp_path, scenario).split()
    assert [one.split(":")[0] for one in listed] == ["5", "4", "3"]


def test_a_start_on_a_store_without_the_watermark_begins_an_epoch_and_is_held(tmp_path):
    with_plane(tmp_path, watermark.raise_watermark)
    asyncio.run(WatermarkFile(tmp_path).write(1, Watermark(7, 1.0, "lost")))

    async def scenario(plane):
        return plane.pause.epoch, plane.pause.why

    epoch_begun, why = with_plane(tmp_path, scenario)
    assert epoch_begun == 2
    assert "lacks the watermark that was committed to it at 1970-01-01 00:00:01 UTC" in why
    assert with_plane(tmp_path, scenario) == (2, why)


def test_a_running_process_stops_when_its_store_has_lost_the_watermark(tmp_path):
    async def scenario(plane):
        await plane.pause.write_watermark(Watermark(7, 1.0, "lost"))
        await epoch.tick(plane)
        assert plane.pause.must_restart
        assert not plane.engine.accepts
        await epochs.pause_after_rewind(plane, "a second reason")
        return plane.pause.why

    assert with_plane(tmp_path, scenario).endswith("are lost: restart this process")
    memo = EpochFile(tmp_path).read() or Memo()
    assert (memo.epoch, "lacks the watermark" in memo.pause_reason) == (2, True)


def test_a_store_that_says_it_went_backwards_pauses_the_next_start(tmp_path):
    async def scenario(plane):
        async def find(*_):
            raise StoreRewound("it lacks o/1/1/x")

        async with epoch.following(plane, clock=SystemClock(), seconds=1e9):
            with patched(type(plane.store), find=find):
                await epoch.tick(plane)
        return plane.pause.why, plane.pause.must_restart

    assert with_plane(tmp_path, scenario) == ("it lacks o/1/1/x: restart this process", True)
    assert EpochFile(tmp_path).read() == Memo(2, "it lacks o/1/1/x")


def test_the_file_of_the_watermark_only_rises_and_an_epoch_begins_anew(tmp_path):
    file = WatermarkFile(tmp_path)
    assert file.read() is None
    for number, begun in ((5, 1), (4, 1), (1, 2), (9, 1)):
        asyncio.run(file.write(begun, Watermark(number, 1.5, "w")))
    assert file.read() == (2, Watermark(1, 1.5, "w"))
    assert file.path.stat().st_mode & 0o777 == 0o600
    hold = Pause(None, file)
    assert hold.read_watermark() is None, "it is of another epoch"
    file.path.write_text('{"epoch": 1}')
    with pytest.raises(StoreError, match="cannot be read: nothing was touched"):
        file.read()


SYNC, QUORUM = Standby("a", "sync"), Standby("b", "quorum")
ASYNC, POTENTIAL, UNSEEN = Standby("c", "async"), Standby("d", "potential"), Standby("e", None)


@pytest.mark.parametrize(
    ("names", "standbys", "keeps_commits", "found"),
    [
        ("", [], True, "no standby is connected"),
        ("", [ASYNC], False, "asynchronous: c"),
        ("", [UNSEEN], False, "asynchronous: e"),
        ("*", [], False, "commits wait for '*'"),
        ("a", [SYNC], True, "synchronous: a"),
        ("ANY 1 (a, b)", [QUORUM], True, "synchronous: b"),
        ("a", [SYNC, ASYNC, POTENTIAL], False, "synchronous: a; asynchronous: c, d"),
        ("x", [ASYNC], False, "none of the standbys (c) is named by 'x'"),
        ("x", [UNSEEN], True, "connected: e"),
    ],
)
def test_which_standbys_have_what_was_acknowledged(names, standbys, keeps_commits, found):
    judged = assess(names, standbys)
    assert judged.keeps_commits == keeps_commits
    assert found in judged.found
    assert bool(judged.advice) == (not keeps_commits or UNSEEN in standbys)
