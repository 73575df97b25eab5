"""The rows of agents and of their names.

This module builds the writes of the tables `agent` and `agent_name`, except those that change only
the lock of an agent: these are in `tenure.ports.lock_rows`.
"""

from tenure.core.agent import AgentState
from tenure.core.records import AgentNameRecord, AgentRecord, key_of
from tenure.ports.store import Drop, Put, Row, Set


def put_agent(agent: AgentRecord) -> Put:
    """Write the row of a new agent."""
    return Put.of(agent)


def update_agent(uid: str, columns: Row) -> Set:
    """Write these columns with a record of the agent's operation."""
    return Set("agent", (uid,), columns)


def start_verb(
    agent: AgentRecord,
    operation: str,
    new_state: AgentState,
    *,
    epoch: int,
    is_new: bool,
    waits_for_lock: bool,
    now: float,
) -> Set:
    """Write the state in which a verb starts, and whether it has the lock or waits for it.

    An operation that `is_new` makes the next generation; one that was queued has made it before.
    """
    columns: Row = {"generation": agent.generation + 1} if is_new else {}
    columns |= {"epoch": epoch, "state": new_state, "updated_at": now}
    columns |= {"next": operation} if waits_for_lock else {"operation": operation, "next": None}
    return Set("agent", (agent.uid,), columns)


def replace_agent(uid: str, new_state: AgentState, *, keep_spec: bool, now: float) -> Set:
    """Write the state of an agent whose create failed and whose name another agent gets."""
    columns: Row = {"state": new_state, "updated_at": now}
    return Set("agent", (uid,), columns if keep_spec else {**columns, "spec": None})


def set_parent(uid: str, parent: str | None) -> Set:
    """Write the owner that is the agent's parent; None: nobody owns it."""
    return Set("agent", (uid,), {"parent": parent})


def set_serving(uid: str, serving: str) -> Set:
    """Write where the agent is reached, as JSON."""
    return Set("agent", (uid,), {"serving": serving})


def set_generation_and_epoch(agent: AgentRecord, *, generation: int, epoch: int | None) -> Set:
    """Write the generation, and the epoch of an agent; a lock without an agent has no epoch."""
    columns: Row = {"generation": generation}
    return Set("agent", (agent.uid,), columns if epoch is None else {**columns, "epoch": epoch})


def put_name(tenant: str, name: str, uid: str) -> Put:
    """Give a free name to an agent."""
    return Put.of(AgentNameRecord(tenant, name, uid))


def move_name(name: AgentNameRecord, uid: str) -> Set:
    """Give a name to another agent."""
    return Set("agent_name", key_of(name), {"agent": uid})


def drop_name(tenant: str, name: str) -> Drop:
    """Free the name of an agent that is deleted."""
    return Drop("agent_name", (tenant, name))
