"""Every destination that does not accept events is reported.

There is one finding for each destination, however many events it has not accepted.  The finding is
open while a stream of an agent is parked there, or while deliveries to it fail.  It is resolved
when the events were accepted or an operator has discarded them.  If a plane died while it removed a
destination, this reconciler drops the rows that are left.
"""

from dataclasses import dataclass

from tenure.app.events import subscriptions
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.core.records import CursorRecord, LetterRecord, ParkedRecord, SubscriptionRecord
from tenure.reconcilers.passes import FindingAbout, Pass, Tick

SENTENCE = "Every destination that does not accept events is reported."
NAME = "letters"
REPORT_AFTER_SECONDS = 60.0
"""How long deliveries to a destination may fail before that is reported."""


@dataclass(slots=True)
class _Streams:
    """The parked streams of one destination."""

    agent: str
    """The agent of the first stream."""
    why: str
    since: float
    count: int = 0
    without_retry: int = 0
    """How many of the streams wait for an operator, who replays or discards them."""


async def tick(plane: Plane, *, limit: int = 500, this_pass: Pass | None = None) -> Tick:
    """Read every parked stream, and then check every destination."""
    this_pass = this_pass or Pass(plane, NAME)
    seen = fixed = 0
    parked: dict[str, _Streams] = {}
    async for row in every(plane.store, ParkedRecord):
        seen += 1
        fresh = _Streams(row.agent, row.why, row.since)
        one = parked.setdefault(row.destination, fresh)
        one.since = min(one.since, row.since)
        one.count += 1
        one.without_retry += row.due_at is None
    before = plane.store.now() - REPORT_AFTER_SECONDS
    async for cursor in every(plane.store, CursorRecord):
        streams = parked.pop(cursor.destination, None)
        failing_since = None if cursor.since is None or cursor.since > before else cursor.since
        if streams is not None or failing_since is not None:
            seen += failing_since is not None
            await _report(plane, this_pass, cursor, streams, failing_since=failing_since)
    for destination in list(parked)[:limit]:  # no cursor: the destination was removed
        if not this_pass.read_only:
            fixed += await subscriptions.drop_letters(plane, destination, guards=this_pass.fence())
    await this_pass.resolve_unseen()
    return Tick(seen, fixed)


async def _report(
    plane: Plane,
    this_pass: Pass,
    cursor: CursorRecord,
    streams: _Streams | None,
    *,
    failing_since: float | None,
) -> None:
    destination = cursor.destination
    known = await plane.store.find(SubscriptionRecord, (destination,))
    name, tenant = destination, ""
    if known is not None:
        name, tenant = f"subscription {known.name}", known.tenant
    details: dict[str, object] = {"destination": destination}
    what: list[str] = []
    if failing_since is not None:
        what.append(f"has accepted nothing since {in_utc(failing_since)}: {cursor.why}")
        details["failing_since"] = failing_since
    agent = ""
    if streams is not None:
        letters = await plane.store.count_rows(LetterRecord, {"destination": destination})
        agent = streams.agent if streams.count == 1 else ""
        advice = "replay or discard them" if streams.without_retry else "they are sent again later"
        whose = f"of {streams.count} agents" if streams.count > 1 else "of one agent"
        what.append(
            f"has not accepted {letters} events {whose} since {in_utc(streams.since)}:"
            f" {streams.why}; {advice}"
        )
        details |= {"letters": letters, "parked": streams.count, "since": streams.since}
    if cursor.missed:
        what.append(f"has missed {cursor.missed} events, which are no longer stored")
        details["missed"] = cursor.missed
    await this_pass.report(
        FindingKind.CONFIRMED, destination, f"{name} {', and '.join(what)}",
        about=FindingAbout(tenant, agent), details=details,
    )  # fmt: skip
