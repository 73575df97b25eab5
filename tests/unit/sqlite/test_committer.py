"""Group commit from inside: what shares a transaction, who is answered when, what errors end."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from tenure.core.errors import CommitUnknown, StoreError, StoreFull
from tenure.core.limits import BATCH_CHANGES_MAX
from tenure.ports.store import CommitRefusal, Is, Put, Set
from tenure.sqlite import applier
from tenure.sqlite import committer as module
from tenure.sqlite.commit_thread import Done, InlineRunner, ThreadRunner, Work
from tenure.testing.contracts.store_rows import scenario
from tests.unit.support.small_file import (
    CountingFlush,
    FailableConnection,
    PausedFlush,
    bytes_of,
    change,
    line,
    lines,
    make,
    names,
    run_ready_tasks,
    thing,
)


@scenario
async def test_changes_of_one_turn_share_a_commit_up_to_the_bound(
    connection: FailableConnection,
) -> None:
    flush = CountingFlush()
    committer = make(connection, flush)
    count = 3 * BATCH_CHANGES_MAX + 1
    answers = await asyncio.gather(
        *(committer.commit(change(thing(f"{n:05}"))) for n in range(count))
    )
    assert answers == [None] * count
    assert flush.flushes == 4
    assert len(names(connection)) == count


@scenario
async def test_nobody_is_answered_before_commit_and_the_next_batch_collects(
    connection: FailableConnection, paused_flush: PausedFlush
) -> None:
    committer = make(connection, paused_flush)
    first = committer.commit(change(thing("a")))
    await run_ready_tasks()
    clash = thing("a", 2)
    second, third, refused = (
        committer.commit(change(put)) for put in (thing("b"), thing("c"), clash)
    )
    await run_ready_tasks()
    assert len(paused_flush.waiting) == 1
    paused_flush.let_go()
    assert first.done()
    assert not second.done()
    assert len(paused_flush.waiting) == 1
    paused_flush.let_go()
    assert [second.result(), third.result()] == [None, None]
    assert refused.result() == CommitRefusal(clash, {"name": "a", "size": 1, "note": None})
    await committer.close()


@scenario
async def test_the_next_batch_is_on_its_way_before_callers_of_the_last_go_on(
    connection: FailableConnection, paused_flush: PausedFlush
) -> None:
    committer = make(connection, paused_flush)
    seen: list[int] = []
    first = committer.commit(change(thing("a")))
    first.add_done_callback(lambda _: seen.append(len(paused_flush.waiting)))
    await run_ready_tasks()
    second = committer.commit(change(thing("b")))
    paused_flush.let_go()
    await run_ready_tasks()
    assert seen == [1]
    paused_flush.let_go()
    assert second.done()
    await committer.close()


@scenario
async def test_refusals_alone_cost_no_commit(connection: FailableConnection) -> None:
    flush = CountingFlush()
    committer = make(connection, flush)
    await committer.commit(change(thing("a")))
    guard = Is("thing", ("a",), {"size": 9})
    refused = CommitRefusal(guard, {"name": "a", "size": 1, "note": None})
    count = BATCH_CHANGES_MAX + 1
    answers = await asyncio.gather(
        *(committer.commit(change(guards=(guard,))) for _ in range(count))
    )
    assert answers == [refused] * count
    assert flush.flushes == 1


@scenario
async def test_very_many_refusals_do_not_nest(connection: FailableConnection) -> None:
    committer = make(connection, InlineRunner())
    missing = Set("thing", ("z",), {"size": 1})
    waiting = [committer.commit(change(missing)) for _ in range(300 * 100)]
    assert set(map(type, await asyncio.gather(*waiting))) == {CommitRefusal}


@scenario
async def test_a_thread_commits_while_the_loop_goes_on(connection: FailableConnection) -> None:
    flush = ThreadRunner("commit")
    committer = make(connection, flush)
    answers = await asyncio.gather(
        *(committer.commit(change(thing(f"{n:05}"))) for n in range(2000))
    )
    assert answers == [None] * 2000
    await committer.close()
    flush.close()


@scenario
async def test_the_loop_turns_while_the_disk_is_slow(connection: FailableConnection) -> None:
    turned = threading.Event()

    class Slow(ThreadRunner):
        def __call__(self, work: Work, on_done: Done) -> None:
            def slowly() -> None:
                if turned.wait(30):
                    work()

            super().__call__(slowly, on_done)

    flush = Slow("commit")
    committer = make(connection, flush)
    waiting = committer.commit(change(thing("a")))
    turns = 0
    while not waiting.done():
        await asyncio.sleep(0.001)
        turns += 1
        if turns > 20:
            turned.set()
    assert turned.is_set()
    assert await waiting is None
    await committer.close()
    flush.close()


def test_a_thread_whose_loop_has_ended_commits_all_the_same(connection: FailableConnection) -> None:
    flush = ThreadRunner("commit")
    committer = make(connection, flush)

    async def leave() -> None:
        _ = committer.commit(change(thing("a")))
        await asyncio.sleep(0)

    asyncio.run(leave())
    flush.close()
    assert names(connection) == ["a"]


@scenario
async def test_ids_of_recent_changes_are_kept_with_their_batch(
    connection: FailableConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applier, "BATCHES_MAX", 3)
    committer = make(connection, InlineRunner())
    for n in range(5):
        put = thing(f"{n}")
        waiting = [
            committer.commit(change(put, name=f"{n}a")),
            committer.commit(change(put, name=f"{n}b")),
        ]
        await asyncio.gather(*waiting, committer.commit(change(name=f"{n}c")))
    kept = connection.execute("SELECT number, changes FROM batch").fetchall()
    assert kept == [(3, "2a 2c"), (4, "3a 3c"), (5, "4a 4c")]
    again = make(connection, InlineRunner())
    await again.commit(change(name="x"))
    assert connection.execute("SELECT max(number) FROM batch").fetchone() == (6,)


# ----------------------------------------------------------------------------------------- errors


@scenario
async def test_an_error_at_commit_is_unknown_to_all_and_for_ever(
    connection: FailableConnection, paused_flush: PausedFlush, path: Path
) -> None:
    committer = make(connection, paused_flush)
    a, left = committer.commit(change(thing("a"))), committer.commit(change(thing("b")))
    await run_ready_tasks()
    waiting, work = committer.commit(change(thing("c"))), committer.run(lambda _: 1)
    left.cancel()
    paused_flush.fail(apsw.IOError("disk I/O error"))
    later = committer.commit(change(thing("d")))
    for future in (a, waiting, work, later):
        with pytest.raises(CommitUnknown, match="disk I/O error"):
            await future
    assert a.exception() is not later.exception()
    await committer.close()
    with pytest.raises(CommitUnknown):
        await committer.commit(change())


@scenario
async def test_a_task_that_meets_an_unknown_commit_ends_with_it_and_the_loop_goes_on(
    connection: FailableConnection, paused_flush: PausedFlush
) -> None:
    committer = make(connection, paused_flush)

    async def careless() -> None:
        try:
            await committer.commit(change(thing("a")))
        except Exception:  # noqa: BLE001 (what it must not catch)
            pytest.fail("caught by `except Exception`")

    task = asyncio.ensure_future(careless())
    await run_ready_tasks()
    paused_flush.fail(OSError("gone"))
    await asyncio.wait([task])
    assert isinstance(task.exception(), CommitUnknown)


@scenario
async def test_after_an_unknown_commit_the_log_is_left_for_recovery(
    path: Path, connection: FailableConnection, paused_flush: PausedFlush
) -> None:
    committer = make(connection, paused_flush)
    await run_ready_tasks()
    ok = committer.commit(change(thing("a")))
    await run_ready_tasks()
    paused_flush.let_go()
    await ok
    lost = committer.commit(change(thing("b")))
    await run_ready_tasks()
    paused_flush.fail(OSError("gone"))
    assert isinstance(lost.exception(), CommitUnknown)
    log = bytes_of(f"{path}-wal")
    connection.close()
    assert bytes_of(f"{path}-wal") == log
    again = apsw.Connection(str(path))
    assert again.execute("SELECT name FROM thing").fetchall() == [("a",)]
    again.close()


@scenario
async def test_a_full_disk_before_commit_keeps_nothing_and_the_committer_lives(
    connection: FailableConnection,
) -> None:
    committer = make(connection, InlineRunner())
    await committer.commit(change(thing("a"), line("one")))
    connection.pragma("max_page_count", connection.pragma("page_count") + 2)
    big = Put("thing", ("big",), {"size": 1, "note": "x" * 100_000})
    waiting = [committer.commit(change(put, line("lost"))) for put in (thing("b"), big, thing("c"))]
    waiting.append(committer.commit(change(thing("d"))))
    waiting[3].cancel()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreFull] * 3 + [asyncio.CancelledError]
    assert names(connection) == ["a"]
    connection.pragma("max_page_count", 10_000)
    assert await committer.commit(change(thing("b"), line("two"))) is None
    assert lines(connection) == [(1, "one"), (2, "two")]


@scenario
async def test_a_busy_file_is_an_error_that_passes(
    connection: FailableConnection, path: Path
) -> None:
    committer = make(connection, InlineRunner())
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="was not stored"):
        await committer.commit(change(thing("a")))
    other.execute("ROLLBACK")
    other.close()
    assert await committer.commit(change(thing("a"))) is None


@scenario
async def test_trouble_in_the_careful_way_is_nobodys_fault(connection: FailableConnection) -> None:
    committer = make(connection, InlineRunner())

    def failing_disk(cursor: apsw.Cursor) -> None:
        raise apsw.IOError("disk I/O error")

    waiting: list[Any] = [committer.commit(change(thing("x", 5000))), committer.run(failing_disk)]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreError, StoreError]
    assert await committer.commit(change(thing("a"))) is None


@scenario
async def test_a_rollback_that_fails_ends_it(connection: FailableConnection) -> None:
    committer = make(connection, InlineRunner())
    connection.failing["ROLLBACK"] = apsw.IOError("disk I/O error")

    def failing_disk(cursor: apsw.Cursor) -> None:
        raise apsw.IOError("disk I/O error")

    with pytest.raises(CommitUnknown):
        await committer.run(failing_disk)
    with pytest.raises(CommitUnknown):
        await committer.commit(change(thing("a")))


@scenario
async def test_a_file_without_the_committers_own_tables_ends_it(
    connection: FailableConnection,
) -> None:
    committer = make(connection, InlineRunner())
    connection.execute("DROP TABLE batch")
    with pytest.raises(CommitUnknown):
        await committer.commit(change(thing("a")))


@scenario
async def test_an_interrupt_between_statements_ends_it_and_those_answered_before_stay_answered(
    connection: FailableConnection, paused_flush: PausedFlush
) -> None:
    committer = make(connection, paused_flush)
    durable = committer.commit(change(thing("a")))
    await run_ready_tasks()

    def interrupt(cursor: apsw.Cursor) -> None:
        raise KeyboardInterrupt

    interrupted = committer.run(interrupt)
    with pytest.raises(KeyboardInterrupt):
        paused_flush.let_go()
    assert durable.result() is None
    with pytest.raises(CommitUnknown):
        await interrupted
    await committer.close()


# ------------------------------------------------------------------------------------ checkpoints


@scenario
async def test_the_log_is_moved_to_the_main_file_and_begins_anew(
    connection: FailableConnection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_PAGES", 50)
    committer = make(connection, InlineRunner())
    for n in range(100):
        assert (
            await committer.commit(
                change(Put("thing", (f"{n:03}",), {"size": 1, "note": "x" * 5000}))
            )
            is None
        )
    assert len(bytes_of(f"{path}-wal")) < 100 * 5000 / 2
    assert len(bytes_of(path)) > 100 * 5000 / 2


@scenario
async def test_a_reader_postpones_the_move_without_a_try_at_every_batch(
    connection: FailableConnection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_PAGES", 20)
    flush = CountingFlush()
    committer = make(connection, flush)
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT count(*) FROM thing").fetchall()
    for n in range(30):
        await committer.commit(change(Put("thing", (f"{n:03}",), {"size": 1, "note": "x" * 5000})))
    assert 30 < flush.flushes < 45
    assert reader.execute("SELECT count(*) FROM thing").fetchone() == (0,)
    reader.close()


@scenario
async def test_moves_under_readers_lose_nothing(
    connection: FailableConnection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_PAGES", 5)
    flush = ThreadRunner("commit")
    committer = make(connection, flush)
    reader = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    seen = [0]

    async def write(number: int) -> None:
        for n in range(20):
            put = Put("thing", (f"{n:03}-{number:03}",), {"size": 1, "note": "x" * 200})
            assert await committer.commit(change(put, line("x"))) is None

    writing = asyncio.gather(*map(write, range(40)))
    while not writing.done():
        found: list[Any] = reader.execute(
            "SELECT (SELECT count(*) FROM thing), (SELECT count(*) FROM list)"
        ).fetchall()
        assert found[0][0] == found[0][1] >= seen[-1]
        seen.append(found[0][0])
        await asyncio.sleep(0)
    await committer.close()
    flush.close()
    reader.close()
    assert len(names(connection)) == 800
    assert connection.pragma("integrity_check") == "ok"


@scenario
async def test_a_disk_that_fails_at_the_move_has_kept_the_commit_and_takes_no_other(
    connection: FailableConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_PAGES", 1)
    committer = make(connection, InlineRunner())
    connection.failing["checkpoint"] = apsw.IOError("disk I/O error")
    assert await committer.commit(change(thing("a"))) is None
    with pytest.raises(CommitUnknown):
        await committer.commit(change(thing("b")))
    assert names(connection) == ["a"]


# ---------------------------------------------------------------------------------------- closing


@scenario
async def test_close_waits_for_every_batch_and_a_cancelled_close_for_nobody(
    connection: FailableConnection, paused_flush: PausedFlush
) -> None:
    committer = make(connection, paused_flush)
    waiting = [committer.commit(change(thing(f"{n:05}"))) for n in range(BATCH_CHANGES_MAX + 1)]
    impatient = asyncio.ensure_future(committer.close())
    closing = [asyncio.ensure_future(committer.close()) for _ in range(2)]
    await run_ready_tasks()
    impatient.cancel()
    await run_ready_tasks()
    paused_flush.let_go()
    await run_ready_tasks()
    assert not any(task.done() for task in closing)
    paused_flush.let_go()
    await asyncio.gather(*closing)
    await committer.close()
    assert all(future.result() is None for future in waiting)
    with pytest.raises(StoreError, match="closed"):
        await committer.commit(change(thing("x")))


def test_the_room_is_plenty_unless_told_otherwise(connection: FailableConnection) -> None:
    async def admit() -> None:
        assert (
            await make(connection, InlineRunner()).commit(change(thing("a"), is_new_work=True))
            is None
        )

    asyncio.run(admit())
