"""The one workflow: it starts what it is told, once each, sleeps when told, and wakes on a signal.

It decides nothing.  What to start, when to look again and when it is over is in the answer of an
activity and so in the history: a changed plan or a changed saga cannot break a replay.  Two rules
of its own keep order among answers: one activity for each step at a time, so a step is undone only
when no call of its do is under way; and of two answers the one with the higher revision counts.
"""

import asyncio
from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, is_cancelled_exception

from tenure.adapters.engine.temporal.messages import (
    CANCEL,
    LOAD,
    REST,
    WAKE,
    WORKFLOW,
    Answer,
    Due,
    Start,
    Task,
)
from tenure.core.retry import TEMPORAL_ACTIVITY

HEARTBEAT = timedelta(seconds=10)
"""A worker that was silent for so long is taken for lost."""
CLOSE = timedelta(days=1)
"""A call has its own limit, and a record is tried until the store takes it."""
RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=TEMPORAL_ACTIVITY.first_seconds),
    maximum_interval=timedelta(seconds=TEMPORAL_ACTIVITY.cap_seconds),
    backoff_coefficient=TEMPORAL_ACTIVITY.factor,
)
"""For lost workers alone: a step's end is an answer, however it ended."""
AGAIN_SECONDS = 10.0
"""Until the operation is looked at again after an activity that gave no answer."""
STATE = SearchAttributeKey.for_keyword("TenureState")
RUNNING = "RUNNING"
"""The state with which a run is started."""
UNSETTLED = frozenset({"do", "inspect"})
"""Acts that a cancel interrupts."""
Handle = workflow.ActivityHandle[Answer]


@workflow.defn(name=WORKFLOW, sandboxed=False)
class OperationRun:
    """One run; the operation may have several, one after the other, all under its id."""

    @workflow.init
    def __init__(self, start: Start) -> None:
        self._operation = start.operation
        self._title = start.title
        self._attributes = start.attributes
        self._answer = start.answer or Answer("", 0)
        self._due_at = self._at(self._answer)
        self._running: dict[str, tuple[str, Handle]] = {}
        """What is under way: act and handle by step; "" is the operation as a whole."""
        self._crowded: set[str] = set()
        """What of that was under way beside others: they may know more than its answer does."""
        self._shown = RUNNING
        """The state that the search attributes show."""
        self._asked = "" if start.answer else LOAD
        """What to ask of the operation as a whole next."""

    @workflow.signal(name=WAKE)
    def wake(self, interrupt: bool) -> None:  # noqa: FBT001 (it stands in histories)
        """Something was recorded for the operation by others."""
        self._asked = self._asked or LOAD
        if interrupt:
            self._interrupt()

    @workflow.run
    async def run(self, start: Start) -> str:
        """Follow the answers until one says that it is over; how it stands then, for people."""
        while True:
            self._begin()
            if not self._running:
                if self._answer.over:
                    return _end(self._answer)
                if workflow.info().is_continue_as_new_suggested():
                    wait = None if self._due_at is None else self._due_at - workflow.time()
                    workflow.continue_as_new(
                        replace(start, answer=replace(self._answer, wait=wait))
                    )
            try:
                await self._something()
            except asyncio.CancelledError:  # Temporal's own cancel is the operation's
                self._asked = CANCEL
            self._collect()

    def _begin(self) -> None:
        """Start what the last answer says, unless it is under way."""
        answer = self._answer
        for due in answer.moves:
            if due.step not in self._running:
                self._running[due.step] = (due.act, self._move(due))
        self._answer = replace(answer, moves=[]) if answer.moves else answer
        if answer.state == "STUCK" and not self._running and not answer.over:
            self._asked = self._asked or REST
        if self._may_ask():
            asked, self._asked = self._asked, ""
            self._running[""] = ("", self._start(asked, Task(self._operation, answer.token)))
        if len(self._running) > 1:
            self._crowded.update(self._running)

    async def _something(self) -> None:
        """Wait until an activity has ended, a signal has come, or it is time."""
        left = None if self._due_at is None else max(0.001, self._due_at - workflow.time())
        try:
            await workflow.wait_condition(self._has_news, timeout=left)
        except TimeoutError:
            self._due_at = None
            if self._answer.then:
                self._answer = replace(self._answer, moves=self._answer.then, then=[], ticket="")
            else:
                self._asked = self._asked or LOAD

    def _has_news(self) -> bool:
        return self._may_ask() or any(handle.done() for _, handle in self._running.values())

    def _may_ask(self) -> bool:
        """Not beside the first move: it claims the operation and brings the token."""
        if not self._asked or "" in self._running:
            return False
        return self._answer.token > 0 or not self._running

    def _collect(self) -> None:
        """Take the answers of what has ended."""
        for step in [step for step, (_, handle) in self._running.items() if handle.done()]:
            _, handle = self._running.pop(step)
            crowded = step in self._crowded
            self._crowded.discard(step)
            try:
                answer = handle.result()
            except (ActivityError, asyncio.CancelledError) as error:
                self._miss(error)
                continue
            if answer.interrupt:
                self._interrupt()
            if answer.look:
                self._asked = self._asked or LOAD
            elif answer.revision >= self._answer.revision or answer.over:
                self._take(step, replace(answer, ticket="") if crowded else answer)

    def _take(self, step: str, answer: Answer) -> None:
        if self._attributes and answer.state and answer.state != self._shown:
            self._shown = answer.state
            workflow.upsert_search_attributes([STATE.value_set(answer.state)])
        if answer.said or answer.why:
            workflow.set_current_details(f"{_end(answer)}\n\n{step}: {answer.said}")
        self._answer = answer
        self._due_at = self._at(answer)

    def _miss(self, error: BaseException) -> None:
        """An activity gave no answer: it was cancelled before it began, or it cannot be run."""
        if is_cancelled_exception(error):
            self._asked = self._asked or LOAD
        else:
            workflow.logger.warning("no answer: %s", error)
            self._due_at = workflow.time() + AGAIN_SECONDS
            self._answer = replace(self._answer, then=[])

    def _interrupt(self) -> None:
        """Stop calls of do's; each still gives its answer."""
        for act, handle in self._running.values():
            if act in UNSETTLED:
                handle.cancel()

    def _move(self, due: Due) -> Handle:
        name = due.step if due.act == "do" else f"{due.step}.{due.act}"
        token, ticket = self._answer.token, self._answer.ticket
        task = Task(self._operation, token, due.step, due.act, due.token, ticket)
        return self._start(name, task)

    def _start(self, name: str, task: Task) -> Handle:
        return workflow.start_activity(
            name,
            task,
            result_type=Answer,
            start_to_close_timeout=CLOSE,
            heartbeat_timeout=HEARTBEAT,
            retry_policy=RETRY,
            summary=self._title,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    def _at(self, answer: Answer) -> float | None:
        return None if answer.wait is None else workflow.time() + answer.wait


def _end(answer: Answer) -> str:
    """How the operation stands, and why."""
    state = answer.state or "held by another"
    return f"{state}: {answer.why}" if answer.why else state
