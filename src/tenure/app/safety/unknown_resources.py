"""Removes a resource that is unknown to our records, only at the request of an operator."""

from typing import cast

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.app.safety.findings import FindingView
from tenure.app.tenancy.audit import audit_line
from tenure.app.tenancy.tokens import require_plane_admin
from tenure.core.agent import AgentState
from tenure.core.errors import Conflict, ConflictCode, Invalid
from tenure.core.finding import FindingKind
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.records import FindingRecord
from tenure.core.roles import Caller, Role, require
from tenure.ports.provider import Presence
from tenure.ports.store import Change


async def remove_resource(
    plane: Plane,
    caller: Caller,
    finding: str,
    *,
    tenant: str = "",
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> FindingView:
    """Remove the resource of this finding at its provider; a second removal succeeds.

    It must be a resource that the reconciler `orphans` has reported as unknown and that is still
    unknown to our records.  The provider checks its tenant, so a caller of another tenant must name
    the resource's tenant.
    """
    require(caller, Role.ADMIN)
    if tenant and tenant != caller.tenant:
        require_plane_admin(caller)
    row = await findings.get_finding_row(plane, caller, finding)
    slot, key = _subject(plane, row, tenant or caller.tenant)
    if row.resolved_at is not None:
        return findings.view(row)
    agent_generations = [(key.agent, key.generation)]
    if key.text in await plane.store.list_living(slot, agent_generations, gone=AgentState.DELETED):
        message = f"{slot} {key.text} is in our records now and belongs to an agent: not removed"
        raise Conflict(message, code=ConflictCode.RESOLVED, holder=finding)
    provider = plane.providers[slot]
    seen = await provider.inspect(key)
    if seen.presence is Presence.FOREIGN:
        raise Invalid(f"tenant: {slot} {key.text} is not of tenant {key.tenant}; name its tenant")
    audit_row = audit_line(
        caller,
        "finding.remove",
        target=finding,
        now=plane.store.now(),
        provider=slot,
        resource=key.text,
        agent=key.agent,
    )
    await idempotency.begin(plane, Change("", (), (audit_row,)))
    await provider.remove(key)
    await findings.resolve(plane, row, by=caller.principal)
    return await findings.get_finding(plane, caller, finding)


def _subject(plane: Plane, row: FindingRecord, tenant: str) -> tuple[str, ResourceKey]:
    """The provider and the key of a finding's resource; Invalid if it is no such finding."""
    body = findings.body_of(row)
    slot, generation = str(body.get("provider", "")), body.get("generation")
    if row.kind != FindingKind.UNVERIFIABLE or slot not in plane.providers or generation is None:
        raise Invalid(f"finding {row.id!s} is not about a resource unknown to our records")
    return slot, resource_key(
        plane.id,
        tenant=tenant,
        agent=row.agent,
        generation=cast(int, generation),
        slot=slot,
        name="",
        text=row.resource,
    )
