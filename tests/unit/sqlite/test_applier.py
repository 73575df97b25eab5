"""One change inside a batch: applied whole, refused whole, or poisoned and alone in it."""

import asyncio
from typing import Any

import apsw
import pytest

from tenure.core.errors import Defect, StoreError, StoreFull
from tenure.ports.store import AtLeast, CommitRefusal, Drop, Is, Next, Put, Set
from tenure.sqlite import applier
from tenure.sqlite.applier import RESERVE_BYTES
from tenure.sqlite.commit_thread import InlineRunner
from tenure.testing.contracts.store_rows import scenario
from tests.unit.support.small_file import (
    CountingFlush,
    FailableConnection,
    change,
    line,
    lines,
    make,
    names,
    part,
    thing,
)


@scenario
async def test_one_poisoned_change_fails_alone(connection: FailableConnection) -> None:
    committer = make(connection, InlineRunner())
    poison: list[Any] = [
        thing("x", 5000),
        thing("x", None),
        thing("x", object()),
        thing("x", 2**70),
        thing("x", "\ud800"),
        line("\ud800"),
        Put("thing", (), {"size": 1}),
        Set("thing", ("a",), {"size": 5000}),
        Set("thing", ("a",), {}),
        Set("thing", ("a",), {"size": Next("n")}),  # type: ignore[dict-item]
        Put("moon", ("x",), {}),
        Drop("moon", ("x",)),
        Drop("thing", ("a", "b")),
    ]
    await committer.commit(change(thing("a")))
    for number, bad in enumerate(poison):
        before, after = f"b{number:02}", f"c{number:02}"
        waiting = [
            committer.commit(change(thing(before), line(before))),
            committer.commit(change(thing("poisoned"), line("lost"), bad)),
            committer.commit(change(thing(after), line(after))),
        ]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert (answers[0], answers[2]) == (None, None)
        assert type(answers[1]) is Defect, bad
        assert "apsw" not in repr(answers[1])
        assert answers[1].__cause__ is None
    assert "poisoned" not in names(connection)
    assert [number for number, _ in lines(connection)] == list(range(1, 2 * len(poison) + 1))
    assert connection.execute("SELECT name, value FROM counter").fetchall() == [
        ("lines", 2 * len(poison))
    ]


@scenario
async def test_a_clash_takes_back_its_rows_and_its_numbers(connection: FailableConnection) -> None:
    committer = make(connection, InlineRunner())
    await committer.commit(change(thing("a"), line("one")))
    clash = thing("a", 7)
    answer = await committer.commit(
        change(line("lost"), thing("b"), line("lost"), clash, line("never"))
    )
    assert answer == CommitRefusal(clash, {"name": "a", "size": 1, "note": None})
    twice = thing("c", 2)
    answer = await committer.commit(change(thing("c", 1), twice))
    assert answer == CommitRefusal(twice, {"name": "c", "size": 1, "note": None})
    answer = await committer.commit(change(twice, twice))
    assert answer == CommitRefusal(twice, {"name": "c", "size": 2, "note": None})
    await committer.commit(change(line("two")))
    assert (names(connection), lines(connection)) == (["a"], [(1, "one"), (2, "two")])


@scenario
async def test_numbers_are_those_on_disk_and_only_some_are_held(
    connection: FailableConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(applier, "CACHED_COUNTERS_MAX", 2)
    connection.execute("INSERT INTO counter VALUES ('lines', 41)")
    committer = make(connection, InlineRunner())
    await committer.commit(
        change(line("a"), *(thing(f"{n}", Next(f"counter{n}")) for n in range(5)))
    )
    await committer.commit(change(line("b")))
    assert committer._applier._numbers == {"lines": 43}
    assert lines(connection) == [(42, "a"), (43, "b")]


@scenario
async def test_a_function_runs_inside_a_batch(connection: FailableConnection) -> None:
    flush = CountingFlush()
    committer = make(connection, flush)
    await committer.commit(change(thing("a"), thing("b")))

    def grow(cursor: apsw.Cursor) -> int:
        cursor.execute("UPDATE thing SET size = size + 1")
        return connection.changes()  # type: ignore[no-any-return]

    grown, put = committer.run(grow), committer.commit(change(thing("c")))
    assert (await grown, await put) == (2, None)
    assert connection.execute("SELECT sum(size) FROM thing").fetchone() == (5,)
    assert flush.flushes == 2


@scenario
async def test_a_function_that_raises_fails_alone(connection: FailableConnection) -> None:
    committer = make(connection, InlineRunner())

    def bad(cursor: apsw.Cursor) -> None:
        cursor.execute("INSERT INTO thing VALUES ('bad', 1, NULL)")
        raise ValueError("no")

    def refuse(cursor: apsw.Cursor) -> None:
        raise StoreError("our own word")

    waiting: list[Any] = [committer.commit(change(thing("a"))), committer.run(bad)]
    waiting += [committer.run(refuse), committer.commit(change(thing("b")))]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert (answers[0], answers[3]) == (None, None)
    assert type(answers[1]) is Defect
    assert str(answers[2]) == "our own word"
    assert names(connection) == ["a", "b"]


@scenario
async def test_room_is_asked_once_a_batch_and_only_for_new_work(
    connection: FailableConnection,
) -> None:
    asked = []
    free = [RESERVE_BYTES - 1]

    def free_bytes() -> int:
        asked.append(1)
        return free[0]

    committer = make(connection, InlineRunner(), free_bytes=free_bytes)
    waiting = [committer.commit(change(thing(name), is_new_work=name < "c")) for name in "abcd"]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreFull, StoreFull, type(None), type(None)]
    assert len(asked) == 1
    await committer.commit(change(thing("e")))
    assert len(asked) == 1
    free[0] += 1
    await committer.commit(change(thing("a"), is_new_work=True))
    assert names(connection) == ["a", "c", "d", "e"]


@scenario
async def test_a_batch_that_is_written_change_by_change_answers_each_as_before(
    connection: FailableConnection,
) -> None:
    """Two changes put the same row, so that the first way gives the whole batch up."""
    committer = make(connection, InlineRunner(), free_bytes=lambda: RESERVE_BYTES - 1)
    await committer.commit(change(thing("a"), thing("z")))
    waiting = [
        committer.commit(change(thing("b"))),
        committer.commit(change(thing("b"))),
        committer.commit(change(thing("c"), is_new_work=True)),
        committer.commit(change(Set("thing", ("a",), {"size": 2}), Drop("thing", ("z",)))),
    ]
    put, clash, full, changed = await asyncio.gather(*waiting, return_exceptions=True)
    assert (put, changed) == (None, None)
    assert isinstance(clash, CommitRefusal)
    assert type(full) is StoreFull
    assert names(connection) == ["a", "b"]
    assert connection.execute("SELECT sum(size) FROM thing").fetchone() == (3,)


@scenario
async def test_guards_are_looked_at_by_the_statement_that_changes_their_row(
    connection: FailableConnection,
) -> None:
    """The same answers as by looking first: who is refused leaves nothing, the others stand."""
    committer = make(connection, InlineRunner())
    await committer.commit(change(*map(thing, "abcd"), *map(part, "abcd")))

    def grow_row(name: str, *guards: Is) -> asyncio.Future[CommitRefusal | None]:
        return committer.commit(
            change(Set("thing", (name,), {"size": 2}), line(name), guards=guards)
        )

    own = Is("thing", ("b",), {"size": 1, "note": None})
    held, lost = Is("part", ("b", 1), {"size": 1}), Is("part", ("c", 1), {"size": 7})
    bound, elsewhere = Is("thing", ("d",), {"size": AtLeast(1)}), Is("part", ("a", 1), {})
    for waiting, answers in (
        ([grow_row("a", Is("thing", ("a",), {})), grow_row("b", own, held)], [None, None]),
        (
            [grow_row("b", own), grow_row("c", lost), grow_row("d", bound, elsewhere)],
            [
                CommitRefusal(own, {"name": "b", "size": 2, "note": None}),
                CommitRefusal(lost, {"thing": "c", "number": 1, "size": 1}),
                None,
            ],
        ),
    ):
        assert await asyncio.gather(*waiting) == answers
    found = connection.execute("SELECT name, size FROM thing").fetchall()
    assert found == [("a", 2), ("b", 2), ("c", 1), ("d", 2)]
    assert lines(connection) == [(1, "a"), (2, "b"), (3, "d")]


@scenario
async def test_a_guard_is_about_what_was_before_its_change(connection: FailableConnection) -> None:
    committer = make(connection, InlineRunner())
    await committer.commit(change(thing("a")))
    there = Is("part", ("a", 1), {"size": 1})
    grow = Set("thing", ("a",), {"size": 2})
    assert await committer.commit(change(grow, part("a"), guards=(there,))) == CommitRefusal(
        there, None
    )
    await committer.commit(change(part("a")))
    shrink = Set("part", ("a", 1), {"size": 0})
    assert await committer.commit(change(grow, shrink, guards=(there,))) is None
    # Handed in together: the second is about what the first leaves.
    waiting = [
        committer.commit(change(Set("part", ("a", 1), {"size": 1}))),
        committer.commit(change(grow, guards=(there,))),
        committer.commit(change(shrink)),
        committer.commit(change(grow, guards=(there,))),
    ]
    left = CommitRefusal(there, {"thing": "a", "number": 1, "size": 0})
    assert await asyncio.gather(*waiting) == [None, None, None, left]
