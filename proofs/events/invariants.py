"""What must hold of the events that a receiver has got, held against the committed ones."""

from collections.abc import Sequence

from tenure.core.records import OutboxRecord
from tenure.ports.bus import Outgoing


def violations(deliveries: Sequence[Outgoing], rows: Sequence[OutboxRecord]) -> list[str]:
    """Every rule of the promise that does not hold."""
    wrong: list[str] = []
    committed = {(row.agent, row.sequence) for row in rows}
    first: dict[tuple[str, int], str] = {}
    last: dict[str, int] = {}
    for event in deliveries:
        what = (event.agent, event.sequence)
        known = first.setdefault(what, event.id)
        if known != event.id:
            wrong.append(f"id: event {what} came as {known} and as {event.id}: applied twice")
        if event.sequence > last.get(event.agent, 0) + 1:
            wrong.append(f"order: {what} came after {last.get(event.agent, 0)}")
        last[event.agent] = max(last.get(event.agent, 0), event.sequence)
    wrong += [f"missing: {what} never arrived" for what in sorted(committed - set(first))]
    wrong += [f"invented: {what} was never committed" for what in sorted(set(first) - committed)]
    return wrong
