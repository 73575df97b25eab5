"""Rows of an agent that are written in the same commit as a journal entry of its operation.

The declaration of the verb says which state follows; this module makes the rows.  If another
operation has closed the agent, an operation releases the lock and changes nothing else of the
agent.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tenure.app.agents import agent_rows, edge_rows
from tenure.app.operations.handle import encode, stored_input_of
from tenure.app.operations.outbox_rows import NEW_EVENT, POSITION, event_sequence_of
from tenure.app.operations.tombstones import tombstones
from tenure.app.tenancy import quota_rows
from tenure.core.agent import AgentState
from tenure.core.agent_events import agent_event
from tenure.core.edge import EdgeKind
from tenure.core.errors import Conflict, ConflictCode, PlanUnknown
from tenure.core.operation import SUPERSEDED, OperationState
from tenure.core.progress import Progress
from tenure.core.records import AgentRecord, OperationRecord
from tenure.plans.agents.inputs import AgentInput, QueuedInput, VerbInput, read_stored
from tenure.plans.agents.lifecycle import CLOSING, VERBS, input_type, read_input
from tenure.plans.agents.steps import LOCK_STEP, RUNTIME_STEP, LockResult
from tenure.ports.store import Drop, Row, Store, Write
from tenure.ports.subject import SubjectOperation

CREDENTIALS = "credentials"
"""The slot of the credentials that an agent may ask for."""


def typed_input_of(operation: OperationRecord) -> AgentInput | QueuedInput:
    """The input of the operation of this row.

    The plan may be no lifecycle verb, or a verb of a newer release.  Then the fields that are known
    here are read, and fields that are stored in another form count as missing.
    """
    plan_name, stored = operation.plan_name, stored_input_of(operation)
    if plan_name in VERBS:
        return read_input(plan_name, stored)
    try:
        return read_stored(stored, input_type(plan_name, stored), what=plan_name)
    except PlanUnknown:
        return VerbInput()


class AgentSubject:
    """What operations of the lifecycle verbs mean for agents (`tenure.ports.subject.Subject`)."""

    def read_input(self, plan_name: str, stored: Mapping[str, object]) -> AgentInput | QueuedInput:
        """Read the stored input as the type that the verb declares."""
        return read_input(plan_name, stored)

    def name_of(self, operation_input: AgentInput | QueuedInput | Mapping[str, object]) -> str:
        """The agent's name."""
        if isinstance(operation_input, AgentInput | QueuedInput):
            return operation_input.name
        return str(operation_input.get("name", ""))

    def is_accepted_on_full_disk(self, plan_name: str) -> bool:
        """A verb that closes an agent is accepted on a full disk."""
        return plan_name in CLOSING

    def writes_for_entry(
        self, operation: SubjectOperation, progress: Progress, state: OperationState, now: float
    ) -> Sequence[Write]:
        """The agent's row once its operation is in `state`, its event, and drops at the end."""
        values: AgentInput | QueuedInput = operation.input
        row: Row = {}
        if progress.end is not None:  # its end sets the column that names the operation to NULL
            row = dict.fromkeys(_lock_columns(operation, progress))
        others: list[Write] = []
        if not _is_queued(operation):
            verb = VERBS[operation.plan_name]
            return_state = _return_state(operation, progress)
            new_state = verb.agent_after(operation.state, state, return_state=return_state)
            if new_state is not None:
                row |= _serving_and_spec(operation, progress, new_state)
            if new_state is not None and SUPERSEDED not in progress.signals:
                row |= {"state": new_state, "updated_at": now}
                whose = operation.tenant, operation.agent, operation.id
                others.append(
                    agent_event_row(*whose, new_state, name=values.name, verb=verb.name, now=now)
                )
        if progress.end is not None:
            others += _release_writes(operation, progress)
            if progress.end is OperationState.COMPENSATED:
                intents = operation.intents.items()
                others += tombstones(
                    [(operation.id, name) for name, one in intents if one.slot], now
                )
        return [agent_rows.update_agent(operation.agent, row), *others] if row else others

    async def refuse_cancel(self, store: Store, operation: OperationRecord) -> None:
        """A verb that has closed its agent cannot be cancelled until it has the lock."""
        if operation.plan_name not in CLOSING or typed_input_of(operation).queued:
            return
        agent = await store.find(AgentRecord, (operation.agent,))
        if agent is not None and agent.next == operation.id:
            message = (
                f"operation {operation.id} has closed the agent and waits for operation"
                f" {agent.operation}; cancel it after that one has ended"
            )
            raise Conflict(message, code=ConflictCode.NOT_ITS_TURN, holder=operation.id)


def _is_queued(operation: SubjectOperation) -> bool:
    """Whether the operation waits for the lock and has changed nothing of the agent so far."""
    values: AgentInput | QueuedInput = operation.input
    return values.queued


def _return_state(operation: SubjectOperation, progress: Progress) -> AgentState:
    """The state to which a cancel returns the agent: as of the lock step, or of the acceptance."""
    values = operation.input
    accepted = values.return_state if isinstance(values, VerbInput) else AgentState.READY
    return _lock_result(progress).return_state or accepted


def _lock_columns(operation: SubjectOperation, progress: Progress) -> tuple[str, ...]:
    """The column in which the agent's row names this operation: `operation` or `next`, or none.

    An operation can end while it waits: a stop does much of its work before it has the lock, and a
    stuck one can be abandoned.  A queued one is named nowhere once another verb closed the agent.
    """
    if _is_queued(operation) and SUPERSEDED in progress.signals:
        return ()
    needs_lock = LOCK_STEP in operation.plan.steps and LOCK_STEP not in progress.done
    waits = needs_lock and operation.input.previous_operation
    return ("next" if waits else "operation",)


def agent_event_row(
    tenant: str,
    agent: str,
    operation: str,
    new_state: AgentState,
    *,
    name: str,
    verb: str,
    now: float,
) -> Write:
    """The event row that announces the new state of an agent."""
    body = encode({"state": new_state, "name": name, "by": verb})
    event = agent_event(new_state)
    return NEW_EVENT.expand(
        (POSITION, tenant, agent, operation, event, now, body, event_sequence_of(agent))
    )


def _serving_and_spec(
    operation: SubjectOperation, progress: Progress, new_state: AgentState
) -> Row:
    """The columns that say where the agent is reached, when that changes."""
    values, verb = operation.input, VERBS[operation.plan_name]
    if new_state is AgentState.READY and verb.starts_runtime:
        started = progress.done.get(RUNTIME_STEP)
        return {"serving": encode(started if isinstance(started, dict) else {})}
    if progress.end is OperationState.COMPENSATED:
        return {}  # the agent returns to its earlier state, with the runtime that it had then
    keeps_runtime = verb.keeps_runtime is not None and verb.keeps_runtime(values)
    gone = new_state is AgentState.DELETED or (
        new_state is AgentState.SUSPENDED and not keeps_runtime
    )
    row: Row = {"serving": None} if gone else {}
    if new_state is AgentState.DELETED and values.retention != "retain":
        row["spec"] = None
    return row


def _release_writes(operation: SubjectOperation, progress: Progress) -> list[Write]:
    """Rows that the end drops: the reservation, name and edges of an agent that does not exist."""
    verb, succeeded = VERBS[operation.plan_name], progress.end is OperationState.SUCCEEDED
    reserved = quota_rows.drop_reservation(operation.tenant, quota_rows.AGENTS, operation.agent)
    if verb.reserves and not succeeded:
        steps = [step for name, step in operation.plan.steps.items() if name == CREDENTIALS]
        keys = [operation.new_key(step) for step in steps]
        return [reserved, *_credential_edges(operation.agent, keys)]
    if verb.releases and succeeded:
        values: VerbInput = operation.input
        name = agent_rows.drop_name(operation.tenant, values.name)
        edges = [
            edge_rows.drop_edge_between(owner, EdgeKind.AGENT, operation.agent)
            for owner in values.owners or ()
        ]
        keys = [held.key for held in _lock_result(progress).holds.get(CREDENTIALS, ())]
        return [reserved, name, *edges, *_credential_edges(operation.agent, keys)]
    return []


def _credential_edges(agent: str, keys: Iterable[str]) -> list[Drop]:
    """Drop the edges from an agent to its own credentials, which are removed."""
    return [edge_rows.drop_edge_between(agent, EdgeKind.CREDENTIAL, key) for key in keys]


def _lock_result(progress: Progress) -> LockResult:
    """The result of the lock step; empty if it is not done, or an operator adopted it as done."""
    try:
        return msgspec.convert(progress.done.get(LOCK_STEP, {}), LockResult)
    except msgspec.ValidationError:
        return LockResult()


SUBJECTS = {"agent": AgentSubject()}
"""The subjects of the plans of the agent lifecycle."""
