"""The workflow by hand: which cache key it sends with each activity.

A cache key lets a worker use its cached operation; so it may be sent only while nothing else was
performed since its answer.  Temporal itself is not here: what is started is noted.
"""

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace
from temporalio import workflow

from tenure.adapters.engine.temporal.messages import LOAD, ActivityInput, Answer, DueMove, RunInput
from tenure.adapters.engine.temporal.workflow import OperationRun

ONE, TWO, NEXT = DueMove("one", "do", 1), DueMove("two", "do", 1), DueMove("next", "do", 1)


@pytest.fixture(autouse=True)
def status_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the run says of itself; no time passes."""
    said: list[str] = []
    monkeypatch.setattr(workflow, "time", lambda: 0.0)
    monkeypatch.setattr(workflow, "set_current_details", said.append)
    monkeypatch.setattr(workflow, "upsert_search_attributes", lambda _: None)
    return said


class Run(OperationRun):
    """A run that notes what it starts; each ends with the answer it is given here."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(RunInput("operation", "title", answer=answer))
        self.started: list[tuple[str, ActivityInput]] = []

    def _start(self, name: str, task: ActivityInput) -> Any:
        self.started.append((name, task))
        return Future()

    def begin(self) -> list[tuple[str, str]]:
        """What it starts now, each with the cache key that it sends."""
        before = len(self.started)
        self._start_due()
        return [(name, task.cache_key) for name, task in self.started[before:]]

    def end(self, step: str, answer: Answer) -> None:
        """What was started for this step has ended so."""
        handle: Any = self._running[step][1]
        handle.set_result(answer)
        self._collect()


def answer(revision: int, *moves: DueMove) -> Answer:
    return Answer("RUNNING", 1, revision, list(moves), cache_key=f"t{revision}")


def test_the_ticket_of_the_last_answer_is_shown_if_nothing_was_beside_it():
    run = Run(answer(1, ONE))
    assert run.begin() == [("one", "t1")]
    run.end("one", answer(2, NEXT))
    assert run.begin() == [("next", "t2")]


def test_of_two_at_once_neither_answer_gives_a_ticket():
    run = Run(answer(1, ONE, TWO))
    run.begin()
    run.end("one", answer(2))
    run.end("two", answer(3, NEXT))
    assert run.begin() == [("next", "")]


def test_a_look_beside_a_move_takes_the_ticket_of_both():
    for first, last in (("", "one"), ("one", "")):
        run = Run(answer(1, ONE))
        run.begin()
        run.wake(False)
        assert run.begin() == [(LOAD, "")]
        run.end(first, answer(2))
        run.end(last, answer(2, NEXT))
        assert run.begin() == [("next", "")]


def test_alone_again_an_answer_gives_a_ticket_again():
    run = Run(answer(1, ONE, TWO))
    run.begin()
    run.end("one", answer(2))
    run.end("two", answer(3, NEXT))
    run.begin()
    run.end("next", answer(4, ONE))
    assert run.begin() == [("one", "t4")]


def test_what_is_started_by_time_shows_no_ticket(monkeypatch):
    """A poll beside may have said meanwhile that a call is out."""

    async def it_is_time(_condition: object, *, timeout: float) -> None:  # noqa: ASYNC109
        raise TimeoutError(timeout)

    monkeypatch.setattr(workflow, "wait_condition", it_is_time)
    run = Run(Answer("RUNNING", 1, 1, [], wait_seconds=5.0, moves_after_wait=[ONE], cache_key="t1"))
    assert run.begin() == []
    asyncio.run(run._wait_for_event())
    assert run.begin() == [("one", "")]


def test_a_run_shows_how_it_stands_and_ends_with_why(status_texts):
    run = Run(answer(1, ONE))
    run.begin()
    run.end("one", replace(answer(2, NEXT), step_status="done"))
    run.begin()
    why = "next was refused: no"
    over = Answer("COMPENSATED", 1, 3, ends_run=True, step_status="refused: no", reason=why)
    run.end("next", over)
    assert status_texts == ["RUNNING\n\none: done", f"COMPENSATED: {why}\n\nnext: refused: no"]
    assert asyncio.run(run.run(RunInput("operation"))) == f"COMPENSATED: {why}"


def test_a_run_of_an_operation_that_is_anothers_says_so():
    run = Run(Answer("", 1, ends_run=True))
    assert asyncio.run(run.run(RunInput("operation"))) == "held by another"
