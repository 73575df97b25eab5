"""A resource that our records know nothing of, removed by a person's word and never without it."""

from typing import cast

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.app.safety.findings import FindingView
from tenure.app.tenancy.audit import entry
from tenure.app.tenancy.tokens import require_owner
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
    """Remove at its provider what this finding is about; twice succeeds.

    Only what orphans could not judge, and only while our records still know nothing of it.  Of
    whose it is the provider knows the tenant, and the one who asks names it if it is not his own.
    """
    require(caller, Role.ADMIN)
    if tenant and tenant != caller.tenant:
        require_owner(caller)
    row = await findings.get_finding_row(plane, caller, finding)
    slot, key = _subject(plane, row, tenant or caller.tenant)
    if row.resolved_at is not None:
        return findings.view(row)
    if key.text in await plane.store.list_living(slot, [(key.agent, key.generation)]):
        message = f"our records know {slot} {key.text} by now: it is an agent's, and was left"
        raise Conflict(message, code=ConflictCode.RESOLVED, holder=finding)
    provider = plane.providers[slot]
    seen = await provider.inspect(key)
    if seen.presence is Presence.FOREIGN:
        raise Invalid(f"tenant: {slot} {key.text} is not of tenant {key.tenant}; name its tenant")
    told = entry(
        caller,
        "finding.remove",
        target=finding,
        now=plane.store.now(),
        provider=slot,
        resource=key.text,
        agent=key.agent,
    )
    await idempotency.begin(plane, Change("", (), (told,)))
    await provider.remove(key)
    await findings.settle(plane, row, by=caller.principal)
    return await findings.get_finding(plane, caller, finding)


def _subject(plane: Plane, row: FindingRecord, tenant: str) -> tuple[str, ResourceKey]:
    """The provider and the key of what a finding is about; Invalid if it is no such finding."""
    said = findings.body_of(row)
    slot, generation = str(said.get("provider", "")), said.get("generation")
    if row.kind != FindingKind.UNVERIFIABLE or slot not in plane.providers or generation is None:
        raise Invalid(
            f"finding {row.id!s} is not about a resource that our records know nothing of"
        )
    return slot, resource_key(
        plane.id,
        tenant=tenant,
        agent=row.agent,
        generation=cast(int, generation),
        slot=slot,
        name="",
        text=row.resource,
    )
