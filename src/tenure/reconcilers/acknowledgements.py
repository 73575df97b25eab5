"""No operation waits for an acknowledgement that cannot come; a missing one is reported.

If a plane dies while it removes a subscription, or if a reaction is lost, an operation may wait for
a subscriber that no longer exists.  This reconciler ends such a wait.  If the subscriber exists,
the missing acknowledgement is a finding; only the subscriber or an operator can acknowledge.
"""

from tenure.app.events import acknowledgements
from tenure.app.events.acknowledgements import AcknowledgementState
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.finding import FindingKind
from tenure.core.instant import in_utc
from tenure.core.records import AcknowledgementRecord, SubscriptionRecord
from tenure.core.roles import Caller, Role
from tenure.reconcilers.passes import FindingAbout, Pass, Tick

SENTENCE = "No operation waits for an acknowledgement that cannot come."
NAME = "acknowledgements"
REPORT_AFTER_SECONDS = 60.0
"""How long an acknowledgement may be missing before it is reported."""
CONTINUES = "; the subscriber was deleted, and the operation goes on"
CONTINUES_LATER = (
    "; the subscriber was deleted, and the operation goes on when a process of the newer release"
    " leads"
)


async def tick(plane: Plane, *, limit: int = 500, this_pass: Pass | None = None) -> Tick:
    """Check every missing acknowledgement; end at most `limit` waits."""
    this_pass = this_pass or Pass(plane, NAME)
    seen = fixed = 0
    async for row in every(plane.store, AcknowledgementRecord, {"acknowledged_at": None}):
        seen += 1
        state = await acknowledgements.state_of(plane, row)
        if state is AcknowledgementState.MISSING:
            if row.since <= plane.store.now() - REPORT_AFTER_SECONDS:
                await _report(plane, this_pass, row)
        elif not this_pass.read_only and fixed < limit:
            caller = Caller(row.tenant, f"reconciler {this_pass.reconciler}", Role.OPERATOR)
            is_closed = await acknowledgements.close_acknowledgement(plane, caller, row, state)
            fixed += is_closed
            if state is AcknowledgementState.SUBSCRIBER_DELETED:
                await _report(plane, this_pass, row, CONTINUES if is_closed else CONTINUES_LATER)
    await this_pass.resolve_unseen()
    return Tick(seen, fixed)


async def _report(
    plane: Plane, this_pass: Pass, row: AcknowledgementRecord, effect: str = ""
) -> None:
    operation, subscription = row.operation, row.subscription
    known = await plane.store.find(SubscriptionRecord, (subscription,))
    name = subscription if known is None else known.name
    await this_pass.report(
        FindingKind.CONFIRMED, f"{operation} {subscription}",
        f"operation {operation} has waited for the acknowledgement of {name}"
        f" since {in_utc(row.since)}{effect}",
        about=FindingAbout(row.tenant, row.agent),
        details={"operation": operation, "subscription": subscription, "since": row.since},
    )  # fmt: skip
