"""A subject: the kind of thing that the operations of a plan act on, such as an agent.

`tenure.app.operations` executes operations of any plan and does not know agents.  A plan names its
subject.  The subject returns the rows that are written in the same commit as a journal entry (for
an agent: its new state and its event), and says whether an operation can be cancelled.  A plan that
names no subject has a `PlainSubject`: its operations only lock a row.
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
    """An open operation, as it is before the journal entry that is being written."""

    id: str
    tenant: str
    plan_name: str
    """The name of its plan."""
    agent: str
    """The uid of the row that the operation locks."""
    input: Any
    """What the subject's `read_input` has returned."""
    plan: Plan
    state: OperationState
    intents: dict[str, Intent]

    def new_key(self, step: Step) -> str:
        """The key of the resource that this step makes."""
        ...


class Subject(Protocol):
    """The effects of operations on things of one kind."""

    def read_input(self, plan_name: str, stored: Mapping[str, object]) -> Any:  # noqa: ANN401
        """The input of an operation of this plan, in the type that its steps read.

        It is called once each time an operation is loaded.  PlanUnknown if the stored input does
        not have the form that this release knows.
        """
        ...

    def name_of(self, operation_input: Any) -> str:  # noqa: ANN401
        """The name of the thing that an operation with this input acts on; empty: it has none.

        `operation_input` is the stored input, or the return value of `read_input`.
        """
        ...

    def is_accepted_on_full_disk(self, plan_name: str) -> bool:
        """Whether an operation of this plan is accepted when the disk is nearly full."""
        ...

    def writes_for_entry(
        self, operation: SubjectOperation, progress: Progress, state: OperationState, now: float
    ) -> Sequence[Write]:
        """The rows to write with a journal entry that ends the operation or changes its state.

        `progress` and `state` are those after the entry; `operation` is as it was before.
        """
        ...

    async def refuse_cancel(self, store: Store, operation: OperationRecord) -> None:
        """Conflict if this operation cannot be cancelled at this moment."""
        ...


class PlainSubject:
    """Operations only lock a row, and release it when they end."""

    def read_input(self, plan_name: str, stored: Mapping[str, object]) -> Mapping[str, object]:  # noqa: ARG002
        """The stored plain data."""
        return stored

    def name_of(self, operation_input: object) -> str:  # noqa: ARG002
        """It has no name."""
        return ""

    def is_accepted_on_full_disk(self, plan_name: str) -> bool:  # noqa: ARG002
        """New work is refused (StoreFull) while there is no space."""
        return False

    def writes_for_entry(
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
