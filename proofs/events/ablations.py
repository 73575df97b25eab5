"""The safeguards of event delivery that the harness can switch off."""

import itertools
from contextlib import AbstractContextManager
from typing import Any

from proofs.harness.ablation import Ablation, by_name
from tenure.app.events import cloudevents as app_events
from tenure.core.events import event_id
from tenure.core.records import OutboxRecord, ParkedRecord
from tenure.delivery import outbox
from tenure.delivery.outbox import AgentQueues, DestinationRoute, E, SendResult
from tenure.ports.store import Change, Set
from tenure.testing.patches import patched

_send = outbox._send  # noqa: SLF001 (the function that is switched off)


def marked_first() -> AbstractContextManager[None]:
    """Move the cursor before the events are published."""

    async def send(plane: Any, route: DestinationRoute, rows: Any) -> SendResult:
        if rows and isinstance(rows[0], OutboxRecord):
            there = Set("cursor", (route.id,), {"position": rows[-1].position})
            await plane.store.commit(Change("", (), (there,)))
        return await _send(plane, route, rows)

    return patched(outbox, _send=send)


def newest_first() -> AbstractContextManager[None]:
    """Send the newest event of each agent first."""

    def heads(queues: AgentQueues[E]) -> list[E]:
        return [queue[-1] for queue in queues.values()]

    return patched(outbox, next_of_each_agent=heads)


def ids_drawn() -> AbstractContextManager[None]:
    """Give an event another id each time it is sent."""
    numbers = itertools.count()

    def random_event_id(position: int, agent: str, sequence: int | None, at: float) -> str:
        return f"{event_id(position, agent, sequence, at)}-{next(numbers)}"

    return patched(app_events, event_id=random_event_id)


def parked_forgotten() -> AbstractContextManager[None]:
    """Send an agent's next event although an earlier one of it is a dead letter."""

    async def none(_plane: Any, _route: DestinationRoute) -> list[ParkedRecord]:
        return []

    async def never(
        _plane: Any, _leader: Any, _route: DestinationRoute, _now: float
    ) -> outbox.DeliveryResult:
        return outbox.DeliveryResult()

    return patched(outbox, _list_parked=none, _retry_parked=never)


ABLATIONS = by_name(
    (
        Ablation(
            "published_before_marked",
            "A cursor moves only after all events before it were published.",
            "S21",
            (17,),
            "relay_dies",
            marked_first,
        ),
        Ablation(
            "one_of_an_agent_at_a_time",
            "The next event of an agent is sent only after its previous event was accepted.",
            "S21",
            (17,),
            "relay_dies",
            newest_first,
        ),
        Ablation(
            "stable_event_id",
            "An event always has the same id, so that a consumer can recognise a copy.",
            "S21",
            (17,),
            "relay_dies",
            ids_drawn,
        ),
        Ablation(
            "letters_go_first",
            "Later events of an agent wait behind its dead letter.",
            "S21",
            (17,),
            "receiver_refuses",
            parked_forgotten,
        ),
    )
)
"""Every safeguard of events that can be switched off, by name."""
