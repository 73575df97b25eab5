"""Starts, wakes and signals the workflow runs of operations; a run has its operation's id."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import SearchAttributePair, TypedSearchAttributes, WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from tenure.adapters.engine.temporal.connection import (
    AGENT,
    KIND,
    NAME,
    STATE,
    register_attributes,
)
from tenure.adapters.engine.temporal.messages import WAKE, WORKFLOW, Answer, RunInput
from tenure.adapters.engine.temporal.settings import TemporalSettings
from tenure.core.errors import EngineError
from tenure.core.operation import OperationState
from tenure.core.records.operation import OperationRecord
from tenure.ports.engine import MoveExecutor
from tenure.ports.store import Store

log = logging.getLogger("tenure.engine")
RPC_TIMEOUT = timedelta(seconds=10)


class RunLabels(NamedTuple):
    """The search attributes of a run: its plan, its agent, and the agent's name."""

    kind: str
    agent: str
    name: str

    @property
    def title(self) -> str:
        """The summary that Temporal shows beside the run and each of its activities."""
        return f"{self.kind} of {f'{self.name} ({self.agent})' if self.name else self.agent}"


class Runs:
    """The runs of one plane; without a client every method does nothing."""

    def __init__(
        self, executor: MoveExecutor[Any], *, store: Store, settings: TemporalSettings
    ) -> None:
        self._executor = executor
        self._store = store
        self._settings = settings
        self.client: Client | None = None
        """None before the engine has started, and after it has stopped."""
        self.queue = ""
        """The task queue of the plane."""
        self.has_attributes = False
        """Whether the namespace has our search attributes."""
        self.has_worker = False
        """Whether this process runs a worker, which can then start runs eagerly."""

    async def start_or_wake(
        self, operation: str, *, wake: bool = True, interrupt: bool = False
    ) -> None:
        """Wake the run of an operation, or start one that loads it first."""
        row = await self._store.find(OperationRecord, (operation,))
        if row is None:
            return
        if row.ended_at is not None:
            await self.signal(operation, interrupt=interrupt)
            return
        labels = RunLabels(row.plan_name, row.agent, self._executor.name_of(row))
        idle_seconds = self._store.now() - row.updated_at
        if idle_seconds > self._settings.margin_seconds and await self.is_elsewhere(operation):
            await self.start(operation, labels, None, replace=True)
            return
        await self.start(operation, labels, None, wake=wake, interrupt=interrupt)

    async def is_elsewhere(self, operation: str) -> bool:
        """Whether its run is on a task queue that the plane used before and that has no workers."""
        if self.client is None:
            return False
        run: WorkflowHandle[Any, Any] = self.client.get_workflow_handle(operation)
        try:
            found = await run.describe(rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            message = f"Temporal could not describe operation {operation} ({error.message})"
            raise EngineError(message) from None
        is_running = found.status is WorkflowExecutionStatus.RUNNING
        if not is_running or found.task_queue == self.queue:
            return False
        log.warning(
            "operation %s is idle on task queue %s; a new run replaces it on %s",
            operation, found.task_queue, self.queue,
        )  # fmt: skip
        return True

    async def start(
        self,
        operation: str,
        labels: RunLabels,
        answer: Answer | None,
        *,
        wake: bool = False,
        interrupt: bool = False,
        replace: bool = False,
    ) -> None:
        """Start a run; an existing run stays, and is signalled if `wake`.

        `replace` terminates an existing run.  The outcome of its running call is then unknown.
        """
        client = self.client
        if client is None:
            return
        policies = WorkflowIDConflictPolicy
        on_conflict = policies.TERMINATE_EXISTING if replace else policies.USE_EXISTING
        signal: dict[str, Any] = {"start_signal": WAKE, "start_signal_args": [interrupt]}

        async def start(pairs: Sequence[SearchAttributePair[Any]]) -> None:
            await client.start_workflow(
                WORKFLOW,
                RunInput(operation, labels.title, answer, attributes=bool(pairs)),
                id=operation,
                task_queue=self.queue,
                id_conflict_policy=on_conflict,
                search_attributes=TypedSearchAttributes(pairs),
                static_summary=labels.title,
                static_details=(
                    f"One run of operation `{operation}`. Its journal is in the store of the "
                    f"control plane: `tenure operation show {operation}` says how it stands."
                ),
                rpc_timeout=RPC_TIMEOUT,
                request_eager_start=self.has_worker and not wake,
                **(signal if wake else {}),
            )

        try:
            await self.start_with_attributes(start, labels)
        except RPCError as error:
            message = f"Temporal did not start operation {operation} ({error.message})"
            raise EngineError(message) from None

    async def start_with_attributes(
        self,
        start: Callable[[Sequence[SearchAttributePair[Any]]], Awaitable[None]],
        labels: RunLabels,
    ) -> None:
        """Start a run with search attributes; without them if the namespace has lost them."""
        pairs: list[SearchAttributePair[Any]] = [
            SearchAttributePair(AGENT, labels.agent),
            SearchAttributePair(KIND, labels.kind),
            SearchAttributePair(STATE, OperationState.RUNNING),
        ]
        if labels.name:
            pairs.append(SearchAttributePair(NAME, labels.name))
        attributes = pairs if self.has_attributes else []
        try:
            return await start(attributes)
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT or not attributes:
                raise
        if self.has_attributes and self.client is not None:  # else another start registers them
            self.has_attributes = False
            self.has_attributes = await register_attributes(self.client, self._settings)
        return await start(())

    async def signal(self, operation: str, *, interrupt: bool) -> None:
        """Wake the run of an ended operation, if it has one, so that it ends too."""
        if self.client is None:
            return
        run: WorkflowHandle[Any, Any] = self.client.get_workflow_handle(operation)
        try:
            await run.signal(WAKE, interrupt, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                message = f"Temporal did not wake operation {operation} ({error.message})"
                raise EngineError(message) from None
