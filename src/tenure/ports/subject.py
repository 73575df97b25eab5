"""A subject: the kind of thing that operations of a plan act on, such as an agent.

The kernel records moves and knows no capability.  A plan names its subject, and the subject says
what an operation means for the thing it acts on: which rows are written in the same commit as a
record, whether a cancel is allowed, what people call the thing.  A plan that names no subject acts
on a `PlainSubject`, which is a lock and nothing more.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tenure.core.operation import Intent, OperationState
from tenure.core.plan import Plan, Step
from tenure.core.progress import Progress
from tenure.core.records.operation import OperationRecord
from tenure.ports.lock_rows import release_lock
from tenure.ports.store import Store, Write


class SubjectOperation(Protocol):
    """An open operation as its subject sees it, before the record that is being written."""

    id: str
    tenant: str
    plan_name: str
    """The name of its plan."""
    agent: str
    """The uid of the row that the operation locks."""
    input: Any
    """As the subject's `read_input` has read it."""
    plan: Plan
    state: OperationState
    intents: dict[str, Intent]

    def new_key(self, step: Step) -> str:
        """The key of the resource that this step makes."""
        ...


class Subject(Protocol):
    """What operations mean for the things of one kind."""

    def read_input(self, plan_name: str, stored: Mapping[str, object]) -> Any:  # noqa: ANN401
        """The input of an operation of this plan, in the type that its steps read.

        It is called once each time an operation is loaded.  PlanUnknown if the stored input does
        not have the form that this release knows.
        """
        ...

    def name_of(self, operation_input: Any) -> str:  # noqa: ANN401
        """What people call the thing that an operation with this input acts on; empty: no name.

        It takes the input as it is stored, and as `read_input` returns it.
        """
        ...

    def may_use_reserve(self, plan_name: str) -> bool:
        """Whether an operation of this plan is accepted on a disk that takes no other new work."""
        ...

    def on_record(
        self, operation: SubjectOperation, progress: Progress, state: OperationState, now: float
    ) -> Sequence[Write]:
        """The rows to write with a record that ends the operation or changes its state.

        `progress` and `state` are those after the record; `operation` is as it was before.
        """
        ...

    async def refuse_cancel(self, store: Store, operation: OperationRecord) -> None:
        """Conflict if this operation cannot be cancelled at this moment."""
        ...


class PlainSubject:
    """A lock without a meaning of its own: the operation releases it when it ends."""

    def read_input(self, plan_name: str, stored: Mapping[str, object]) -> Mapping[str, object]:  # noqa: ARG002
        """Plain data, as the caller sent it."""
        return stored

    def name_of(self, operation_input: object) -> str:  # noqa: ARG002
        """It has no name."""
        return ""

    def may_use_reserve(self, plan_name: str) -> bool:  # noqa: ARG002
        """New work is refused (StoreFull) while there is no space."""
        return False

    def on_record(
        self,
        operation: SubjectOperation,
        progress: Progress,
        state: OperationState,  # noqa: ARG002
        now: float,  # noqa: ARG002
    ) -> Sequence[Write]:
        """Release the lock at the end."""
        if progress.end is None:
            return ()
        return (release_lock(operation.agent),)

    async def refuse_cancel(self, store: Store, operation: OperationRecord) -> None:
        """It can always be cancelled."""


PLAIN_SUBJECT = PlainSubject()
