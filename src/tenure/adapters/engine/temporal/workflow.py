"""The one workflow: it starts the activities that the last answer names, and sleeps in between.

It decides nothing.  Which moves to start, when to wake and when the run ends stands in an
activity's answer and so in the history.  A changed plan or saga therefore cannot break a replay.

The workflow has two rules of its own.  Each step has at most one activity at a time, so a step is
undone only when no call of its do is running.  Of two answers, the one with the higher revision
counts.
"""

import asyncio
from datetime import timedelta

from msgspec.structs import replace
from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import ActivityError, is_cancelled_exception

from tenure.adapters.engine.temporal.messages import (
    CANCEL,
    LOAD,
    REST,
    WAKE,
    WORKFLOW,
    ActivityInput,
    Answer,
    DueMove,
    RunInput,
)
from tenure.core.retry import TEMPORAL_ACTIVITY

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""A worker that sent no heartbeat for this long counts as lost."""
ACTIVITY_TIMEOUT = timedelta(days=1)
"""A backstop: a provider call has its own limit, and a record is retried until it is stored."""
RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=TEMPORAL_ACTIVITY.first_seconds),
    maximum_interval=timedelta(seconds=TEMPORAL_ACTIVITY.cap_seconds),
    backoff_coefficient=TEMPORAL_ACTIVITY.factor,
)
"""For lost workers only: every ending of a step, also a failure, is an answer."""
RELOAD_SECONDS = 10.0
"""Time until the operation is loaded again after an activity that gave no answer."""
STATE = SearchAttributeKey.for_keyword("TenureState")
RUNNING = "RUNNING"
"""The state with which a run is started."""
INTERRUPTIBLE_ACTS = frozenset({"do", "inspect"})
"""Acts that a cancel interrupts."""
Handle = workflow.ActivityHandle[Answer]


@workflow.defn(name=WORKFLOW, sandboxed=False)
class OperationRun:
    """One run of an operation; an operation may have several, one after the other, under its id."""

    @workflow.init
    def __init__(self, start: RunInput) -> None:
        self._operation = start.operation
        self._title = start.title
        self._attributes = start.attributes
        self._answer = start.answer or Answer("", 0)
        self._due_at = self._due_time(self._answer)
        self._running: dict[str, tuple[str, Handle]] = {}
        """Running activities: act and handle by step; the key "" is the operation as a whole."""
        self._overlapping: set[str] = set()
        """Running activities that overlapped another, whose record they may not have seen."""
        self._shown_state = RUNNING
        """The state in the search attributes."""
        self._next_request = "" if start.answer else LOAD
        """The activity to start next for the operation as a whole; empty: none."""

    @workflow.signal(name=WAKE)
    def wake(self, interrupt: bool) -> None:  # noqa: FBT001 (the signature is in histories)
        """Load the operation again, because somebody else has recorded something for it."""
        self._next_request = self._next_request or LOAD
        if interrupt:
            self._interrupt()

    @workflow.run
    async def run(self, start: RunInput) -> str:
        """Follow the answers until one ends the run; returns the state and reason, for people."""
        while True:
            self._start_due()
            if not self._running:
                if self._answer.ends_run:
                    return _describe(self._answer)
                if workflow.info().is_continue_as_new_suggested():
                    wait = None if self._due_at is None else self._due_at - workflow.time()
                    answer = replace(self._answer, wait_seconds=wait)
                    workflow.continue_as_new(replace(start, answer=answer))
            try:
                await self._wait_for_event()
            except asyncio.CancelledError:  # a cancel of the run cancels the operation
                self._next_request = CANCEL
            self._collect()

    def _start_due(self) -> None:
        """Start the moves of the last answer whose step has no running activity."""
        answer = self._answer
        for due in answer.moves:
            if due.step not in self._running:
                self._running[due.step] = (due.act, self._start_move(due))
        self._answer = replace(answer, moves=[]) if answer.moves else answer
        if answer.state == "STUCK" and not self._running and not answer.ends_run:
            self._next_request = self._next_request or REST
        if self._can_start_request():
            request, self._next_request = self._next_request, ""
            task = ActivityInput(self._operation, answer.token)
            self._running[""] = ("", self._start(request, task))
        if len(self._running) > 1:
            self._overlapping.update(self._running)

    async def _wait_for_event(self) -> None:
        """Wait until an activity has ended, a signal has come, or the timer fires."""
        remaining = None if self._due_at is None else max(0.001, self._due_at - workflow.time())
        try:
            await workflow.wait_condition(self._has_event, timeout=remaining)
        except TimeoutError:
            self._due_at = None
            moves = self._answer.moves_after_wait
            if moves:
                self._answer = replace(self._answer, moves=moves, moves_after_wait=[], cache_key="")
            else:
                self._next_request = self._next_request or LOAD

    def _has_event(self) -> bool:
        return self._can_start_request() or any(h.done() for _, h in self._running.values())

    def _can_start_request(self) -> bool:
        """Never beside the first move, which claims the operation and returns the token."""
        if not self._next_request or "" in self._running:
            return False
        return self._answer.token > 0 or not self._running

    def _collect(self) -> None:
        """Handle the answers of the activities that have ended."""
        for step in [step for step, (_, handle) in self._running.items() if handle.done()]:
            _, handle = self._running.pop(step)
            overlapped = step in self._overlapping
            self._overlapping.discard(step)
            try:
                answer = handle.result()
            except (ActivityError, asyncio.CancelledError) as error:
                self._handle_failure(error)
                continue
            if answer.interrupt:
                self._interrupt()
            if answer.must_reload:
                self._next_request = self._next_request or LOAD
            elif answer.revision >= self._answer.revision or answer.ends_run:
                self._apply(step, replace(answer, cache_key="") if overlapped else answer)

    def _apply(self, step: str, answer: Answer) -> None:
        if self._attributes and answer.state and answer.state != self._shown_state:
            self._shown_state = answer.state
            workflow.upsert_search_attributes([STATE.value_set(answer.state)])
        if answer.step_status or answer.reason:
            workflow.set_current_details(f"{_describe(answer)}\n\n{step}: {answer.step_status}")
        self._answer = answer
        self._due_at = self._due_time(answer)

    def _handle_failure(self, error: BaseException) -> None:
        """Load the operation again: an activity was cancelled before it began, or cannot run."""
        if is_cancelled_exception(error):
            self._next_request = self._next_request or LOAD
        else:
            workflow.logger.warning(
                "operation %s: an activity gave no answer (%s); loading it again in %g s",
                self._operation, error, RELOAD_SECONDS,
            )  # fmt: skip
            self._due_at = workflow.time() + RELOAD_SECONDS
            self._answer = replace(self._answer, moves_after_wait=[])

    def _interrupt(self) -> None:
        """Cancel running do and inspect calls; each still gives its answer."""
        for act, handle in self._running.values():
            if act in INTERRUPTIBLE_ACTS:
                handle.cancel()

    def _start_move(self, due: DueMove) -> Handle:
        name = due.step if due.act == "do" else f"{due.step}.{due.act}"
        token, cache_key = self._answer.token, self._answer.cache_key
        task = ActivityInput(self._operation, token, due.step, due.act, due.token, cache_key)
        return self._start(name, task)

    def _start(self, name: str, task: ActivityInput) -> Handle:
        return workflow.start_activity(
            name,
            task,
            result_type=Answer,
            start_to_close_timeout=ACTIVITY_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=RETRY,
            summary=self._title,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )

    def _due_time(self, answer: Answer) -> float | None:
        return None if answer.wait_seconds is None else workflow.time() + answer.wait_seconds


def _describe(answer: Answer) -> str:
    """The state of the operation, and the reason for it."""
    state = answer.state or "held by another"
    return f"{state}: {answer.reason}" if answer.reason else state
