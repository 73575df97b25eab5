"""Events as they are sent: CloudEvents 1.0, filters, and pages of a tenant's events."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from tenure.app.pages import page_of
from tenure.app.plane import Plane
from tenure.core.agent_events import AGENT_EVENTS
from tenure.core.errors import Invalid
from tenure.core.events import PREFIX, OperationEvent, event_id, sequence_text
from tenure.core.records import CursorRecord, EventRecord, OutboxRecord
from tenure.core.roles import Caller
from tenure.ports.bus import Outgoing

EVENT_TYPES = (*OperationEvent, *AGENT_EVENTS.values())
"""Every type of event."""
TRIMMED = "tenure:trimmed"
"""The cursor of earlier releases: every event up to its position was dropped."""
SCAN_MAX = 20_000
"""Events of other tenants that one page may pass over before it returns its position."""
SCAN_ROWS = 250
"""Events that are read together while passing over others."""


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event on the wire; see docs/reference/events.md."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str
    sequence: str
    partitionkey: str
    tenant: str
    operation: str
    data: Any


class EventFilter(NamedTuple):
    """Which events a subscriber receives; an empty field matches everything."""

    agent: str = ""
    """A uid."""
    types: tuple[str, ...] = ()
    """Types, or prefixes with a star: `agent.*`."""
    operation: str = ""

    def has(self, event: EventRecord) -> bool:
        """Whether the filter matches this event."""
        return (
            (not self.agent or event.agent == self.agent)
            and (not self.operation or event.operation == self.operation)
            and (not self.types or _is_of(event.type, self.types))
        )

    def has_type(self, event: str) -> bool:
        """Whether the filter matches events of this type, of some agent and operation."""
        return not self.types or _is_of(event, self.types)


@lru_cache(maxsize=4_096)
def _is_of(kind: str, types: tuple[str, ...]) -> bool:
    return any(kind.startswith(one[:-1]) if one.endswith("*") else kind == one for one in types)


def parse_types(types: Sequence[str]) -> tuple[str, ...]:
    """Types without their prefix; Invalid if one is unknown."""
    bare = tuple(one.removeprefix(PREFIX) for one in types)
    for one in bare:
        if not any(_is_of(event, (one,)) for event in EVENT_TYPES):
            known = ", ".join(EVENT_TYPES)
            raise Invalid(f"types: there is no event {one!r}; there are {known}; agent.* is all")
    return bare


def cloud_event(plane: str, row: EventRecord) -> CloudEvent:
    """An outbox row, or a dead letter, as a CloudEvent."""
    at, agent = row.at, row.agent
    return CloudEvent(
        specversion="1.0",
        id=event_id(row.position, agent, row.sequence, at),
        source=f"urn:tenure:{plane}",
        type=PREFIX + row.type,
        subject=agent,
        time=datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds"),
        datacontenttype="application/json",
        sequence=sequence_text(row.sequence),
        partitionkey=agent,
        tenant=row.tenant,
        operation=row.operation,
        data=msgspec.Raw(row.body.encode()),
    )


def outgoing(plane: str, row: EventRecord) -> Outgoing:
    """An outbox row, or a dead letter, encoded for a bus."""
    event = cloud_event(plane, row)
    return Outgoing(
        event.id, event.tenant, event.subject, event.operation, row.type, row.sequence or 0,
        msgspec.json.encode(event),
    )  # fmt: skip


class EventPage(NamedTuple):
    """Events of a tenant, and the position up to which all events were read."""

    items: Sequence[OutboxRecord]
    position: int
    more: bool
    """Whether there may be more events now."""
    missed: bool = False
    """Whether events after the requested position were dropped from the outbox."""


def trimmed_cursor(tenant: str) -> str:
    """The cursor at the position of the newest event of a tenant that was dropped."""
    return f"{TRIMMED}/{tenant}"


async def _trimmed_position(plane: Plane, tenant: str) -> int:
    """The position of the newest event of a tenant that was dropped, as far as is known."""
    names = (TRIMMED, trimmed_cursor(tenant))
    cursors = [await plane.store.find(CursorRecord, (name,)) for name in names]
    return max((row.position for row in cursors if row is not None), default=0)


async def position_of(plane: Plane, tenant: str, named: int) -> int:
    """The position that a reader names, but at most that of the newest event."""
    if not named:
        return 0
    return min(named, max(await plane.feed.head(), await _trimmed_position(plane, tenant)))


async def list_events(
    plane: Plane, caller: Caller, event_filter: EventFilter, *, after: int = 0, limit: int = 100
) -> EventPage:
    """Events of the caller's tenant after a position, in the order of their commits."""
    limit = page_of(limit)
    missed = after != 0 and after < await _trimmed_position(plane, caller.tenant)
    found: list[OutboxRecord] = []
    scanned, count = 0, max(limit, SCAN_ROWS)
    rows = await plane.feed.after(after, limit=count)
    while True:
        for row in rows:
            after = row.position
            if row.tenant == caller.tenant and event_filter.has(row):
                found.append(row)
                if len(found) == limit:
                    return EventPage(found, after, more=True, missed=missed)
        scanned += len(rows)
        if len(rows) < count:
            return EventPage(found, after, more=False, missed=missed)
        if scanned >= SCAN_MAX:
            return EventPage(found, after, more=True, missed=missed)
        count = SCAN_ROWS
        rows = await plane.feed.more(after, limit=count, tenant=caller.tenant)
