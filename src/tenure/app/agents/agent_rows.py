"""The writes of the tables `agent` and `agent_name`."""

from tenure.core.agent import AgentState
from tenure.core.records import AgentNameRecord, AgentRecord, key_of
from tenure.ports.store import Put, Row, Set


def put_agent(agent: AgentRecord) -> Put:
    """Write the row of a new agent."""
    return Put.of(agent)


def replace_agent(uid: str, then: AgentState, *, keep_spec: bool, now: float) -> Set:
    """Mark an agent whose create failed as replaced by another agent of its name."""
    row: Row = {"state": then, "updated_at": now}
    return Set("agent", (uid,), row if keep_spec else {**row, "spec": None})


def put_name(tenant: str, name: str, uid: str) -> Put:
    """Give a free name to an agent."""
    return Put.of(AgentNameRecord(tenant, name, uid))


def move_name(name: AgentNameRecord, uid: str) -> Set:
    """Give a name to another agent."""
    return Set("agent_name", key_of(name), {"agent": uid})
