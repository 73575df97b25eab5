"""Everything that a store has committed about operations, read through its port.

Invariants are checked against a snapshot that is read when every operation has ended or is stuck.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tenure.core.records import (
    AgentRecord,
    IntentRecord,
    JournalRecord,
    OperationRecord,
    OutboxRecord,
)
from tenure.ports.store import Store
from tenure.testing.loop import Trace

PAGE = 1_000
TENANT = "default"


class Snapshot(NamedTuple):
    """The committed rows that invariants of operations read."""

    operations: Mapping[str, OperationRecord]
    journals: Mapping[str, Sequence[JournalRecord]]
    intents: Mapping[str, Sequence[IntentRecord]]
    events: Sequence[OutboxRecord]
    active: Mapping[str, str]
    """The operation that has the lock of each agent, for agents that have operations."""

    def states(self) -> tuple[str, ...]:
        """The states of operations, agent by agent, in the order of acceptance."""
        rows = sorted(self.operations.values(), key=_acceptance_order)
        return tuple(str(row.state) for row in rows)

    def add_to(self, trace: Trace) -> None:
        """Add the end of every operation to the trace of a run."""
        for name, row in self.operations.items():
            trace.add(name, row.state, row.revision, row.updated_at)


def _acceptance_order(row: OperationRecord) -> tuple[str, int]:
    return row.agent, row.generation


async def read_snapshot(store: Store, *, tenant: str = TENANT) -> Snapshot:
    """Read a store through its port."""
    operations: dict[str, OperationRecord] = {}
    last = ""
    while page := await store.list_operations(tenant, after=last, limit=PAGE):
        operations.update({row.id: row for row in page})
        last = page[-1].id
    journals: dict[str, Sequence[JournalRecord]] = {}
    intents: dict[str, Sequence[IntentRecord]] = {}
    active: dict[str, str] = {}
    for name, row in operations.items():
        loaded = await store.load(name)
        assert loaded is not None, f"operation {name} is listed and not there"
        journals[name], intents[name] = loaded.journal, loaded.intents
        agent = row.agent
        if agent not in active and (holder := await store.find(AgentRecord, (agent,))):
            active[agent] = str(holder.operation)
    events: list[OutboxRecord] = []
    position = 0
    while more := await store.list_events(after=position, limit=PAGE):
        events += more
        position = more[-1].position
    return Snapshot(operations, journals, intents, events, active)


def journal_only_grew(before: Snapshot, after: Snapshot) -> list[str]:
    """A record that was committed once is never changed or removed."""
    return [
        f"the journal of {name} was rewritten"
        for name, journal in before.journals.items()
        if list(after.journals.get(name, ()))[: len(journal)] != list(journal)
    ]
