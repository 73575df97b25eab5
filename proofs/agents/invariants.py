"""What must hold of agents after every run, counted in the providers' own truth.

Each function keeps one sentence and returns its violations; an empty list means that it holds.
They are asked when every operation has ended or is stuck and nothing is on its way any more.
What an agent should hold follows here from its state and from nothing that the product computes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from proofs.agents.lifecycle import SLOTS, TENANT, Fakes
from proofs.harness.snapshot import Snapshot, read_snapshot
from proofs.operations import invariants
from tenure.core.agent import PERMISSIONS, AgentState
from tenure.core.audit import first_broken
from tenure.core.operation import OPERATION, IntentState, OperationState
from tenure.core.plan import Plan
from tenure.core.records import (
    AgentNameRecord,
    AgentRecord,
    AuditRecord,
    OperationRecord,
    ReservationRecord,
)
from tenure.core.verb import VerbName
from tenure.plans.agents.lifecycle import VERBS
from tenure.ports.provider import Presence
from tenure.ports.store import R, Store
from tenure.testing.fakes import World

ROWS = 1_000
NO_RUNTIME = tuple(slot for slot in SLOTS if slot != "runtime")
WAITING = {"turn", "sub_agents"}
"""Steps that wait for other operations."""
LIVE = {AgentState.READY, AgentState.SUSPENDED, AgentState.DELETE_FAILED}
"""States at rest that count against a quota."""


@dataclass(frozen=True, slots=True)
class AgentSnapshot:
    """Everything that is known of the agents of a run."""

    kernel: Snapshot
    agents: Mapping[str, AgentRecord]
    names: Mapping[str, str]
    reserved: frozenset[str]
    audit: Sequence[AuditRecord]
    world: World
    fakes: Fakes
    plans: Mapping[str, Plan]
    acknowledged_ids: Sequence[str] = ()

    def operations_of(self, agent: str) -> list[OperationRecord]:
        """The operations of an agent, oldest first."""
        rows = [row for row in self.kernel.operations.values() if row.agent == agent]
        return sorted(rows, key=lambda row: row.generation)

    def is_at_rest(self, agent: str) -> bool:
        """Whether no operation of this agent is open."""
        ends = OPERATION.final
        return all(row.state in ends for row in self.operations_of(agent))

    def was_left(self, agent: str) -> bool:
        """Whether an operator gave an operation of it up: what was left is listed."""
        given_up = OperationState.ABANDONED
        return any(row.state == given_up for row in self.operations_of(agent))


async def read_agents(
    store: Store,
    world: World,
    fakes: Fakes,
    *,
    plans: Mapping[str, Plan],
    acknowledged_ids: Sequence[str] = (),
    kernel: Snapshot | None = None,
) -> AgentSnapshot:
    """Read a store through its port; `kernel` if that part was read already."""
    names = await _all(store, AgentNameRecord)
    reserved = await _all(store, ReservationRecord)
    return AgentSnapshot(
        kernel=kernel or await read_snapshot(store, tenant=TENANT),
        agents={row.uid: row for row in await _all(store, AgentRecord)},
        names={row.name: row.agent for row in names},
        reserved=frozenset(row.agent for row in reserved),
        audit=await _all(store, AuditRecord),
        world=world,
        fakes=fakes,
        plans={plan.digest: plan for plan in plans.values()},
        acknowledged_ids=acknowledged_ids,
    )


async def _all(store: Store, record: type[R]) -> list[R]:
    rows = list(await store.list_rows(record, {}, limit=ROWS))
    assert len(rows) < ROWS, f"more rows of {record.__name__} than a run makes"
    return rows


def holds_what_its_state_says(agents_state: AgentSnapshot) -> list[str]:
    """A READY agent holds one of each, a SUSPENDED one no runtime, one that is gone nothing."""
    wrong: list[str] = []
    for uid, row in agents_state.agents.items():
        if not agents_state.is_at_rest(uid) or agents_state.was_left(uid):
            continue
        state = AgentState(str(row.state))
        held = sorted(thing.provider for thing in agents_state.world.holds(agent=uid))
        wanted: list[tuple[str, ...]] = [()]
        if state is AgentState.READY:
            wanted = [SLOTS]
        elif state is AgentState.SUSPENDED:
            wanted = _resources_while_suspended(agents_state, uid)
        if held not in [sorted(slots) for slots in wanted]:
            wrong.append(f"agent {row.name} is {state} and holds {', '.join(held) or 'none'}")
    return wrong


def _resources_while_suspended(agents_state: AgentSnapshot, uid: str) -> list[tuple[str, ...]]:
    """What the operation that suspended it was asked to leave: a runtime only if it had one."""
    rows = agents_state.operations_of(uid)
    suspended = [
        number
        for number, row in enumerate(rows)
        if row.plan_name in {VerbName.SUSPEND, VerbName.STOP}
        and row.state == OperationState.SUCCEEDED
    ]
    if not suspended or not _input(rows[suspended[-1]]).get("keep_runtime"):
        return [NO_RUNTIME]
    sure = rows[suspended[-1] - 1].state == OperationState.SUCCEEDED
    return [SLOTS] if sure else [SLOTS, NO_RUNTIME]


def nothing_is_an_orphan(agents_state: AgentSnapshot) -> list[str]:
    """Whatever a provider holds of ours is listed as a resource of an agent."""
    listed = {
        intent.key
        for intents in agents_state.kernel.intents.values()
        for intent in intents
        if intent.slot and intent.state != IntentState.BURNED
    }
    return [
        f"{thing.provider} {thing.key.text} of agent {thing.key.agent} is an orphan"
        for thing in agents_state.world.things.values()
        if thing.owner != "someone else" and thing.key.text not in listed
    ]


def what_is_listed_is_there(agents_state: AgentSnapshot) -> list[str]:
    """An agent that is at rest lists as its resources what providers hold, and nothing else."""
    wrong: list[str] = []
    for uid, row in agents_state.agents.items():
        if not agents_state.is_at_rest(uid) or agents_state.was_left(uid):
            continue
        unused = json.loads(str(row.serving or "{}")).get("instead_of")
        listed = {
            (intent.slot, intent.key)
            for one in agents_state.operations_of(uid)
            for intent in agents_state.kernel.intents[one.id]
            if intent.slot and intent.state != IntentState.BURNED and intent.key != unused
        }
        held = {(thing.provider, thing.key.text) for thing in agents_state.world.holds(agent=uid)}
        wrong += [f"agent {uid} lists {slot} {key} in vain" for slot, key in sorted(listed - held)]
    return wrong


def quota_counts_live_agents(agents_state: AgentSnapshot) -> list[str]:
    """There is one reservation for each agent that is there, and no other."""
    live = {
        uid
        for uid, row in agents_state.agents.items()
        if AgentState(str(row.state)) in LIVE or not agents_state.is_at_rest(uid)
    }
    sure = {uid for uid in agents_state.agents if agents_state.is_at_rest(uid)}
    wrong = [
        f"agent {uid} is there and takes no place" for uid in sorted(live - agents_state.reserved)
    ]
    gone = sorted((agents_state.reserved - live) & sure)
    return [w for w in wrong if w.split()[1] in sure] + [
        f"agent {uid} is gone and takes a place" for uid in gone
    ]


def names_are_unique(agents_state: AgentSnapshot) -> list[str]:
    """Every agent that is not deleted has its name to itself; a deleted one has none."""
    wrong: list[str] = []
    for uid, row in agents_state.agents.items():
        named = agents_state.names.get(str(row.name)) == uid
        deleted = row.state == AgentState.DELETED
        if named == deleted:
            word = "has" if named else "lacks"
            wrong.append(f"agent {uid} is {row.state} and {word} the name {row.name}")
    return wrong


def the_lock_is_free(agents_state: AgentSnapshot) -> list[str]:
    """An agent names exactly the operations that are open for it."""
    wrong: list[str] = []
    for uid, row in agents_state.agents.items():
        named = {one for one in (row.operation, row.next) if one is not None}
        opened = {
            one.id for one in agents_state.operations_of(uid) if one.state not in OPERATION.final
        }
        if named != opened:
            wrong.append(f"agent {uid} names {sorted(named)} and open are {sorted(opened)}")
    return wrong


def state_follows_from_operations(agents_state: AgentSnapshot) -> list[str]:
    """An agent that is at rest stands as its operations, told in order, have left it."""
    wrong: list[str] = []
    for uid, row in agents_state.agents.items():
        if not agents_state.is_at_rest(uid):
            continue
        stands = AgentState.CREATING
        for one in agents_state.operations_of(uid):
            if _input(one).get("queued"):
                continue  # its turn never came, or came in vain
            stands = _after(stands, VerbName(one.plan_name), OperationState(str(one.state)))
        if stands is AgentState.CREATE_FAILED and str(row.name) in agents_state.names:
            replaced = agents_state.names[str(row.name)] != uid
            stands = AgentState.DELETED if replaced else stands
        if row.state != stands and not (
            stands is AgentState.CREATE_FAILED and _nameless(agents_state, row)
        ):
            wrong.append(f"agent {uid} is {row.state} and its operations say {stands}")
    return wrong


def _nameless(agents_state: AgentSnapshot, row: AgentRecord) -> bool:
    """Whether its name was created anew, and is gone since."""
    return row.state == AgentState.DELETED and str(row.name) not in agents_state.names


def _after(stands: AgentState, verb: VerbName, end: OperationState) -> AgentState:
    """The state after one more operation has ended, as the design says it."""
    match verb, end:
        case VerbName.CREATE, OperationState.SUCCEEDED:
            return AgentState.READY
        case VerbName.CREATE, _:
            return AgentState.CREATE_FAILED
        case (
            (VerbName.SUSPEND | VerbName.STOP),
            (OperationState.SUCCEEDED | OperationState.ABANDONED),
        ):
            return AgentState.SUSPENDED
        case VerbName.RESUME, OperationState.SUCCEEDED:
            return AgentState.READY
        case VerbName.RESUME, _:
            return AgentState.SUSPENDED
        case VerbName.DELETE, OperationState.SUCCEEDED:
            return AgentState.DELETED
        case VerbName.DELETE, OperationState.ABANDONED:
            return AgentState.DELETE_FAILED
        case ((VerbName.SUSPEND | VerbName.STOP | VerbName.DELETE), _):
            return stands
        case _:  # a verb that has no case here: as its declaration says
            return VERBS[verb].agent_after(OperationState.RUNNING, end) or stands


def ready_agents_are_served(agents_state: AgentSnapshot) -> list[str]:
    """A READY agent's address is that of its runtime, which answers."""
    wrong: list[str] = []
    for uid, row in agents_state.agents.items():
        if (
            not agents_state.is_at_rest(uid)
            or row.state != AgentState.READY
            or agents_state.was_left(uid)
        ):
            continue
        serving = json.loads(str(row.serving or "{}"))
        address = str(serving.get("address", "")).removesuffix(":1")
        there = agents_state.world.holds(provider="runtime", agent=uid)
        if [thing.key.text for thing in there] != [address]:
            keys = [thing.key.text for thing in there]
            wrong.append(f"agent {uid} is READY at {address or 'nowhere'} and runs as {keys}")
            continue
        status = agents_state.fakes.runtime._status(there[0].key, None)  # noqa: SLF001
        if status.presence is not Presence.READY:
            wrong.append(f"agent {uid} is READY and its runtime is {status.presence}")
    return wrong


def doors_stand_as_the_state_says(agents_state: AgentSnapshot) -> list[str]:
    """For an agent at rest something can be minted exactly if its state says so."""
    wrong: list[str] = []
    for uid, row in agents_state.agents.items():
        if not agents_state.is_at_rest(uid) or agents_state.was_left(uid):
            continue
        state = AgentState(str(row.state))
        for name, door in _doors(agents_state):
            is_open = bool(agents_state.world.holds(provider=name, agent=uid)) and door.is_open(uid)
            if is_open and PERMISSIONS[state].issues_tokens == "no":
                wrong.append(f"agent {uid} is {state} and {name} still mints for it")
            if not is_open and PERMISSIONS[state].issues_tokens == "yes":
                wrong.append(f"agent {uid} is {state} and {name} mints nothing for it")
    return wrong


def _doors(agents_state: AgentSnapshot) -> Sequence[tuple[str, Any]]:
    return (
        ("identity", agents_state.fakes.identity.door),
        ("credentials", agents_state.fakes.credentials.door),
    )


def no_child_outlives_its_parent(agents_state: AgentSnapshot) -> list[str]:
    """Nothing is left of a deleted agent's children."""
    return [
        f"agent {uid} is {row.state} and its parent is deleted"
        for uid, row in agents_state.agents.items()
        if row.parent in agents_state.agents
        and agents_state.agents[str(row.parent)].state == AgentState.DELETED
        and row.state != AgentState.DELETED
    ]


def the_audit_chain_is_whole(agents_state: AgentSnapshot) -> list[str]:
    """Every line follows from the one before; every operation of a caller has exactly one."""
    broken = first_broken([list(row) for row in agents_state.audit])
    told = [
        str(json.loads(str(row.body)).get("operation"))
        for row in agents_state.audit
        if str(row.action).startswith("agent.")
    ]
    wrong = [] if broken is None else [f"audit line {broken.position}: {broken.why}"]
    if sorted(told) != sorted(agents_state.kernel.operations):
        wrong.append("the audit log does not tell of every operation once")
    return wrong


def events_tell_the_state(agents_state: AgentSnapshot) -> list[str]:
    """The last event of an agent says the state it is in."""
    last: dict[str, str] = {}
    for event in agents_state.kernel.events:
        if event.type.startswith("agent."):
            last[event.agent] = str(json.loads(event.body)["state"])
    return [
        f"agent {uid} is {row.state} and the last that was told is {last.get(uid)}"
        for uid, row in agents_state.agents.items()
        if last.get(uid) != row.state
    ]


def closed_stays_closed(agents_state: AgentSnapshot) -> list[str]:
    """Once a newer operation was accepted for an agent, an older one says nothing of its state."""
    wrong: list[str] = []
    newest: dict[str, int] = {}
    for event in agents_state.kernel.events:
        operation = agents_state.kernel.operations.get(event.operation)
        if operation is None or not event.type.startswith("agent."):
            continue
        uid, generation = event.agent, operation.generation
        if generation < newest.get(uid, 0):
            wrong.append(f"{event.type} of agent {uid} was told by an operation it had closed")
        newest[uid] = max(generation, newest.get(uid, 0))
    return wrong


def operations_keep_their_word(agents_state: AgentSnapshot) -> list[str]:
    """What the kernel promises of every operation holds here too."""
    evidence = invariants.Evidence(
        agents_state.kernel,
        agents_state.world,
        agents_state.plans,
        agents_state.acknowledged_ids,
        frozenset(),
    )
    kept: tuple[Callable[[invariants.Evidence], list[str]], ...] = (
        invariants.acknowledged_are_kept,
        invariants.every_operation_ended,
        invariants.compensated_left_nothing,
        invariants.nothing_is_there_twice,
        invariants.journal_has_no_holes,
    )
    return [
        f"{check.__name__}: {wrong}"
        for check in kept
        for wrong in check(evidence)
        if not (
            check is invariants.every_operation_ended and _waits(agents_state, wrong.split()[1])
        )
    ]


def _waits(agents_state: AgentSnapshot, operation: str) -> bool:
    """Whether it waits for another one, of its agent or of one that this owns, which is stuck."""
    stuck = any(
        row.state == OperationState.STUCK for row in agents_state.kernel.operations.values()
    )
    there = {
        intent.step
        for intent in agents_state.kernel.intents[operation]
        if intent.state == IntentState.INTENDED
    }
    return stuck and bool(there & WAITING)


def _input(row: OperationRecord) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(row.input))


INVARIANTS: tuple[Callable[[AgentSnapshot], list[str]], ...] = (
    holds_what_its_state_says,
    nothing_is_an_orphan,
    what_is_listed_is_there,
    quota_counts_live_agents,
    names_are_unique,
    the_lock_is_free,
    state_follows_from_operations,
    ready_agents_are_served,
    doors_stand_as_the_state_says,
    no_child_outlives_its_parent,
    the_audit_chain_is_whole,
    events_tell_the_state,
    closed_stays_closed,
    operations_keep_their_word,
)


def violations(agents_state: AgentSnapshot) -> list[str]:
    """Every violation, each begun with the name of its invariant."""
    return [f"{check.__name__}: {wrong}" for check in INVARIANTS for wrong in check(agents_state)]
