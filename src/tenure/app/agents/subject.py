"""What an operation's record means for its agent: written in the same commit as the record.

The verb's declaration says which state follows; here are the rows.  An operation whose agent was
closed by another one releases the lock and changes nothing else of the agent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from tenure.app.operations.handle import OUTBOX, POSITION, encode, input_of, sequence_of
from tenure.app.operations.tombstones import tombstones
from tenure.core.agent import AgentState, Verb
from tenure.core.edge import EdgeKind
from tenure.core.errors import Conflict, ConflictCode
from tenure.core.events import agent_event
from tenure.core.operation import CLOSED, OperationState
from tenure.core.progress import Progress
from tenure.plans.agents.lifecycle import CLOSING, VERBS
from tenure.ports.store import Drop, Row, Set, Store, Write
from tenure.ports.subject import SubjectOperation

TURN = "turn"
"""The step by which an operation gets the agent for itself, and learns how it stood."""
QUEUED = "queued"
"""In the input of an operation that waits its turn and has changed nothing of the agent so far."""
CREDENTIALS = "credentials"
"""The slot of what an agent may ask tokens for."""
AGENTS = "agents"
"""The kind of quota that counts agents."""


class AgentSubject:
    """What operations of the lifecycle verbs mean for agents (`tenure.ports.subject.Subject`)."""

    def name_of(self, operation_input: Mapping[str, object]) -> str:
        """The agent's name."""
        return str(operation_input.get("name", ""))

    def may_use_reserve(self, kind: str) -> bool:
        """A verb that closes an agent is accepted on a full disk."""
        return kind in CLOSING

    def on_record(
        self, operation: SubjectOperation, progress: Progress, state: OperationState, now: float
    ) -> Sequence[Write]:
        """The agent's row once its operation is in `state`, its event, and what an end releases."""
        row: Row = {} if progress.end is None else dict.fromkeys(_lock_column(operation, progress))
        others: list[Write] = []
        if not operation.input.get(QUEUED):
            verb = VERBS[operation.kind]
            was = _state_before(operation, progress)
            then = verb.agent_after(operation.state, state, was=was)
            if then is not None:
                row |= _serving(operation, progress, then)
            if then is not None and CLOSED not in progress.signals:
                row |= {"state": then, "updated_at": now}
                whose = operation.tenant, operation.agent, operation.id
                name = self.name_of(operation.input)
                others.append(agent_event_row(*whose, then, name=name, by=verb.name, now=now))
        if progress.end is not None:
            others += _released(operation, progress)
            if progress.end is OperationState.COMPENSATED:
                intents = operation.intents.items()
                others += tombstones(
                    [(operation.id, name) for name, one in intents if one.slot], now
                )
        return [Set("agent", (operation.agent,), row), *others] if row else others

    async def refuse_cancel(self, store: Store, operation: Row) -> None:
        """A verb that has closed its agent cannot be cancelled until it has the lock."""
        if operation["kind"] not in CLOSING or input_of(operation).get(QUEUED):
            return
        agent = await store.find("agent", (str(operation["agent"]),))
        if agent is not None and agent["next"] == operation["id"]:
            message = (
                f"operation {operation['id']!s} has closed the agent and waits for"
                f" {agent['operation']!s}; cancel it once that has ended"
            )
            raise Conflict(message, code=ConflictCode.NOT_ITS_TURN, holder=str(operation["id"]))


def _state_before(operation: SubjectOperation, progress: Progress) -> AgentState:
    """The agent's state before: as the lock step has found it, or else as it was at acceptance."""
    locked = _result_of(progress, TURN)
    return AgentState(str(locked.get("was") or operation.input.get("was") or AgentState.READY))


def _lock_column(operation: SubjectOperation, progress: Progress) -> tuple[str, ...]:
    """The column in which the agent names this operation: it works on it, or waits to.

    One that waits can end too: a stop begins before its turn, and what is stuck can be abandoned.
    One that was queued may have lost its place to what closed the agent.
    """
    if operation.input.get(QUEUED) and CLOSED in progress.signals:
        return ()
    waits = (
        operation.input.get("after") and TURN in operation.plan.steps and TURN not in progress.done
    )
    return ("next" if waits else "operation",)


def agent_event_row(
    tenant: str, agent: str, operation: str, then: AgentState, *, name: str, by: str, now: float
) -> Write:
    """The event that an agent is in another state."""
    body = encode({"state": then, "name": name, "by": by})
    event = agent_event(then)
    return OUTBOX.write((POSITION, tenant, agent, operation, event, now, body, sequence_of(agent)))


def _serving(operation: SubjectOperation, progress: Progress, then: AgentState) -> Row:
    """Where the agent is reached, when that changes."""
    if then is AgentState.READY and VERBS[operation.kind].starts_runtime:
        return {"serving": encode(_result_of(progress, "runtime"))}
    gone = then is AgentState.DELETED or (
        then is AgentState.SUSPENDED and not operation.input.get("keep_runtime", False)
    )
    row: Row = {"serving": None} if gone else {}
    if then is AgentState.DELETED and operation.input.get("retention") != "retain":
        row["spec"] = None
    return row


def _released(operation: SubjectOperation, progress: Progress) -> list[Write]:
    """What an end gives back: the quota of what is not there, the name of what is gone."""
    end = progress.end
    reserved = Drop("reservation", (operation.tenant, AGENTS, operation.agent))
    if operation.kind == Verb.CREATE and end is not OperationState.SUCCEEDED:
        steps = [step for name, step in operation.plan.steps.items() if name == CREDENTIALS]
        return [
            reserved,
            *_registered(operation.agent, [operation.new_key(step) for step in steps]),
        ]
    if operation.kind == Verb.DELETE and end is OperationState.SUCCEEDED:
        name = Drop("agent_name", (operation.tenant, str(operation.input["name"])))
        owners = cast("list[str]", operation.input.get("owners", []))
        edges = [Drop("edge", (one, EdgeKind.AGENT, operation.agent)) for one in owners]
        held = _result_of(progress, TURN).get("holds", {}).get(CREDENTIALS, ())
        return [reserved, name, *edges, *_registered(operation.agent, [one["key"] for one in held])]
    return []


def _registered(agent: str, keys: Iterable[str]) -> list[Drop]:
    """The edges to an agent's own registrations, which have ended."""
    return [Drop("edge", (agent, EdgeKind.CREDENTIAL, key)) for key in keys]


def _result_of(progress: Progress, step: str) -> dict[str, Any]:
    """What a step returned, if it is done."""
    result = progress.done.get(step)
    return result if isinstance(result, dict) else {}


SUBJECTS = {"agent": AgentSubject()}
"""The subjects of the plans of the agent lifecycle."""
