"""What an operation's record means for its agent: written in the same commit as the record.

Which state follows is the word of `tenure.core.agent`; here are the rows.  An operation whose agent
was closed by another one lets go of the lock and says nothing more.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, cast

from msgspec.structs import replace

from tenure.app.live import OUTBOX, POSITION, Live, encode, sequence_of
from tenure.core import agent
from tenure.core.agent import State, Verb
from tenure.core.edge import EdgeKind
from tenure.core.events import agent_event
from tenure.core.limits import LATE_SECONDS
from tenure.core.operation import CLOSED
from tenure.core.operation import State as OperationState
from tenure.core.progress import Progress
from tenure.ports.store import Change, Drop, Key, Put, Row, Set, Write

VERBS = frozenset(Verb)
TURN = "turn"
"""The step by which an operation gets the agent for itself, and learns how it stood."""
QUEUED = "queued"
"""In the input of an operation that waits its turn and has changed nothing of the agent so far."""
CREDENTIALS = "credentials"
"""The slot of what an agent may ask tokens for."""
AGENTS = "agents"
"""The kind of quota that counts agents."""


def agent_writes(
    live: Live, progress: Progress, state: OperationState, now: float
) -> list[Write]:
    """The agent's row once its operation stands in `state`, and what goes or is told with it."""
    if live.kind not in VERBS:  # it only held the agent, and lets go of it at its end
        return [] if progress.end is None else [Set("agent", (live.agent,), {"operation": None})]
    row: Row = {} if progress.end is None else dict.fromkeys(_place(live, progress))
    also: list[Write] = []
    if not live.input.get(QUEUED):
        then = agent.after_operation(live.kind, live.state, state, was=_was(live, progress))
        if then is not None:
            row |= _serving(live, progress, then)
        if then is not None and CLOSED not in progress.signals:
            row |= {"state": then, "updated_at": now}
            name = str(live.input.get("name", ""))
            told = live.tenant, live.agent, live.id
            also.append(agent_told(*told, then, name=name, by=live.kind, now=now))
    if progress.end is not None:
        also += _released(live, progress)
        if progress.end is OperationState.COMPENSATED:
            burned = [(live.id, name) for name, one in live.intents.items() if one.slot]
            also += tombstones(burned, now)
    return [Set("agent", (live.agent,), row), *also] if row else also


def _was(live: Live, progress: Progress) -> State:
    """How the agent stood before: as its turn has told, or before that as it was accepted."""
    turn = _said(progress, TURN)
    return State(str(turn.get("was") or live.input.get("was") or State.READY))


def _place(live: Live, progress: Progress) -> tuple[str, ...]:
    """The column in which the agent names this operation: it works on it, or waits to.

    One that waits can end too: a stop begins before its turn, and what is stuck can be abandoned.
    One that was queued may have lost its place to what closed the agent.
    """
    if live.input.get(QUEUED) and CLOSED in progress.signals:
        return ()
    waits = live.input.get("after") and TURN in live.plan.steps and TURN not in progress.done
    return ("next" if waits else "operation",)


def tombstones(burned: Iterable[tuple[str, str]], now: float) -> list[Put]:
    """Steps, as (operation, step), whose keys were burned just now and are watched for a while."""
    row: Row = {"until": now + LATE_SECONDS, "sightings": 0}
    return [Put("tombstone", step, row) for step in burned]


def renewed(change: Change, standing: AbstractSet[Key]) -> Change:
    """The same change; tombstones that stand already are not put but begin anew."""
    writes = tuple(
        Set(write.table, write.key, write.row)  # type: ignore[arg-type]
        if type(write) is Put and write.table == "tombstone" and write.key in standing
        else write
        for write in change.writes
    )
    return replace(change, writes=writes)


def agent_told(
    tenant: str, agent: str, operation: str, then: State, *, name: str, by: str, now: float
) -> Write:
    """The event that an agent is in another state."""
    body = encode({"state": then, "name": name, "by": by})
    event = agent_event(then)
    return OUTBOX.write((POSITION, tenant, agent, operation, event, now, body, sequence_of(agent)))


def _serving(live: Live, progress: Progress, then: State) -> Row:
    """Where the agent is reached, when that changes."""
    if then is State.READY and live.kind in {Verb.CREATE, Verb.RESUME, Verb.RECOVER}:
        return {"serving": encode(_said(progress, "runtime"))}
    gone = then is State.DELETED or (
        then is State.SUSPENDED and not live.input.get("keep_runtime", False)
    )
    row: Row = {"serving": None} if gone else {}
    if then is State.DELETED and live.input.get("retention") != "retain":
        row["spec"] = None
    return row


def _released(live: Live, progress: Progress) -> list[Write]:
    """What an end gives back: the quota of what is not there, the name of what is gone."""
    end = progress.end
    reserved = Drop("reservation", (live.tenant, AGENTS, live.agent))
    if live.kind == Verb.CREATE and end is not OperationState.SUCCEEDED:
        steps = [step for name, step in live.plan.steps.items() if name == CREDENTIALS]
        return [reserved, *_registered(live.agent, [live.new_key(step) for step in steps])]
    if live.kind == Verb.DELETE and end is OperationState.SUCCEEDED:
        name = Drop("agent_name", (live.tenant, str(live.input["name"])))
        owners = cast("list[str]", live.input.get("owners", []))
        edges = [Drop("edge", (one, EdgeKind.AGENT, live.agent)) for one in owners]
        held = _said(progress, TURN).get("holds", {}).get(CREDENTIALS, ())
        return [reserved, name, *edges, *_registered(live.agent, [one["key"] for one in held])]
    return []


def _registered(agent: str, keys: Iterable[str]) -> list[Drop]:
    """The edges to an agent's own registrations, which have ended."""
    return [Drop("edge", (agent, EdgeKind.CREDENTIAL, key)) for key in keys]


def _said(progress: Progress, step: str) -> dict[str, Any]:
    """What a step returned, if it is done."""
    result = progress.done.get(step)
    return result if isinstance(result, dict) else {}
