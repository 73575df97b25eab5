"""Every owned resource has a living owner.

The resources that a provider lists as ours are compared with the store.  The provider is listed
first, so a resource that is created meanwhile is in the store by the time that the store is read.
A resource is removed only if all of this holds:

- our own records say that its key is burned or its agent is deleted;
- two passes have seen it, and it is older than a grace period;
- it still exists under the generation that was listed;
- at the commit of the removal our records are unchanged and this process still leads.

That commit leaves a tombstone, so after a crash the reconciler of late arrivals finishes the
removal.

A resource that is unknown to our records, or newer than they are, is reported and never removed: in
that case the store may be out of date.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, cast

from tenure.app.operations.tombstones import tombstones
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.core.agent import AgentState
from tenure.core.errors import ProviderError
from tenure.core.finding import FindingKind
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.limits import LATE_SECONDS, PAGE_MAX
from tenure.core.operation import IntentState
from tenure.core.records import AgentRecord, IntentRecord, OperationRecord, TombstoneRecord
from tenure.ports.operation_rows import burn_intent, touch_operation
from tenure.ports.provider import OwnedResource, Presence, Provider
from tenure.ports.store import Is, Row, Writes
from tenure.reconcilers.circuit_breaker import ProviderBreaker
from tenure.reconcilers.passes import ABOUT_PLANE, FindingAbout, Pass, Tick

SENTENCE = "Every owned resource has a living owner."
NAME = "orphans"
CHUNK = 100
"""Resources that are compared at once."""
REST_SECONDS = 0.012
"""Pause after each chunk, if others have committed since the chunk before."""
GRACE_SECONDS = LATE_SECONDS
"""How old a resource must be to be removed: the call that made it may still be in progress."""
SIGHTINGS = 2
APART_SECONDS = 10.0
"""The least time between the first sighting and the removal."""
CAP_LEAST, CAP_SHARE = 5, 0.1
"""If more orphans than 5 and than a tenth of all resources are found, none is removed: something
else must be wrong.
"""
SILENT_SECONDS = 60.0
"""How long a provider may take for the next part of its list."""
SUSPECTS_MAX = 10_000
REPORTED_MAX = 100
"""Findings of one kind that one pass writes; one more finding has the number of the others."""


class OrphanVerdict(StrEnum):
    """The verdict of our records on a resource that no living agent claims."""

    LIVING = "living"
    ORPHAN = "orphan"
    WATCHED = "watched"
    """Its key was burned lately: the reconciler of late arrivals watches it."""
    UNKNOWN = "unknown"
    """It is not in our records, or it is newer than they are."""


class Suspect(NamedTuple):
    """A resource without a claim, as its provider has listed it."""

    slot: str
    owned: OwnedResource


class JudgedSuspect(NamedTuple):
    """A suspect with the verdict of our records."""

    suspect: Suspect
    verdict: OrphanVerdict
    why: str = ""
    agent: AgentRecord | None = None
    operation: OperationRecord | None = None
    intent: IntentRecord | None = None

    @property
    def about(self) -> FindingAbout:
        """The agent that it belongs to, as far as our records know."""
        tenant = "" if self.agent is None else self.agent.tenant
        return FindingAbout(tenant, self.suspect.owned.agent, self.suspect.owned.key)


@dataclass(slots=True)
class _Progress:
    """The state of one pass."""

    seen: int = 0
    suspects: list[Suspect] = field(default_factory=list)
    overflow: int = 0
    is_complete: bool = True


async def tick(plane: Plane, *, limit: int = 500, this_pass: Pass | None = None) -> Tick:
    """Compare the lists of all providers with the store, and remove resources without an owner."""
    this_pass = this_pass or Pass(plane, NAME)
    progress = _Progress()
    for slot, provider in plane.providers.items():
        await _compare(plane, this_pass, slot, provider, progress)
    verdicts: list[JudgedSuspect] = []
    for suspect in progress.suspects:
        verdicts.append(await judge(plane, suspect))
        await asyncio.sleep(0)
    orphans = [one for one in verdicts if one.verdict is OrphanVerdict.ORPHAN]
    unknown = [one for one in verdicts if one.verdict is OrphanVerdict.UNKNOWN]
    await _report_unknown(this_pass, unknown, progress.overflow)
    for one in verdicts:
        if one.verdict is OrphanVerdict.WATCHED:
            await _report_still_listed(plane, this_pass, one)
    fixed, again = 0, None
    count = len(orphans) + progress.overflow
    if count > cap(progress.seen):
        what = f"{count} of {progress.seen} resources have no owner: too many"
        await this_pass.report(
            FindingKind.UNVERIFIABLE,
            "halted",
            f"{what}; none is removed before an operator has checked",
            about=ABOUT_PLANE,
            details={"orphans": [one.suspect.owned.key for one in orphans[:REPORTED_MAX]]},
        )
    else:
        breaker = ProviderBreaker(plane, NAME)
        orphans.sort(key=lambda one: breaker.order_of(one.suspect.owned.key))
        for one in orphans[:limit]:
            removed, later = await _remove_orphan(plane, this_pass, one, breaker)
            fixed += removed
            again = min((at for at in (again, later) if at is not None), default=None)
    if progress.is_complete:
        await this_pass.resolve_unseen()
    return Tick(progress.seen, fixed, again)


def cap(seen: int) -> float:
    """The largest credible number of orphans among so many resources."""
    return max(CAP_LEAST, CAP_SHARE * seen)


async def _compare(
    plane: Plane, this_pass: Pass, slot: str, provider: Provider, progress: _Progress
) -> None:
    """List one provider, and read from the store which of the resources a living agent claims."""
    loop = asyncio.get_running_loop()
    chunk: list[OwnedResource] = []
    commits = plane.commits.number
    try:
        async with asyncio.timeout(SILENT_SECONDS) as timeout:
            async for owned in provider.list_owned(plane.id):
                chunk.append(owned)
                if len(chunk) >= CHUNK:
                    await _collect_suspects(plane, slot, chunk, progress)
                    chunk = []
                    commits, before = plane.commits.number, commits
                    await asyncio.sleep(REST_SECONDS if commits != before else 0)
                    timeout.reschedule(loop.time() + SILENT_SECONDS)
    except (ProviderError, TimeoutError) as error:
        progress.is_complete = False
        await this_pass.report(
            FindingKind.UNVERIFIABLE,
            f"list {slot}",
            f"provider {slot} could not be listed: {error!r}",
            about=ABOUT_PLANE,
            details={"provider": slot},
        )
    await _collect_suspects(plane, slot, chunk, progress)


async def _collect_suspects(
    plane: Plane, slot: str, chunk: Sequence[OwnedResource], progress: _Progress
) -> None:
    agent_generations = [(one.agent, one.generation) for one in chunk]
    living = await plane.store.list_living(slot, agent_generations, gone=AgentState.DELETED)
    progress.seen += len(chunk)
    for one in chunk:
        if one.key not in living:
            if len(progress.suspects) < SUSPECTS_MAX:
                progress.suspects.append(Suspect(slot, one))
            else:
                progress.overflow += 1


async def judge(plane: Plane, suspect: Suspect) -> JudgedSuspect:
    """Judge a resource that no living agent claims by our records."""
    owned = suspect.owned
    agent = await plane.store.find(AgentRecord, (owned.agent,))
    if agent is None:
        return JudgedSuspect(suspect, OrphanVerdict.UNKNOWN, "our records know no such agent")
    if owned.generation > agent.generation:
        why = f"generation {owned.generation} is newer than our records"
        return JudgedSuspect(suspect, OrphanVerdict.UNKNOWN, why, agent)
    columns: Row = {"agent": owned.agent, "generation": owned.generation}
    for operation in await plane.store.list_rows(OperationRecord, columns, limit=PAGE_MAX):
        found = await plane.store.list_rows(IntentRecord, {"operation": operation.id})
        for intent in found:
            if intent.key == owned.key and intent.slot == suspect.slot:
                return await _judge_by_records(plane, suspect, agent, operation, intent)
    return JudgedSuspect(suspect, OrphanVerdict.UNKNOWN, "our records know no such key", agent)


async def _judge_by_records(
    plane: Plane,
    suspect: Suspect,
    agent: AgentRecord,
    operation: OperationRecord,
    intent: IntentRecord,
) -> JudgedSuspect:
    known = (agent, operation, intent)
    burned, deleted = intent.state == IntentState.BURNED, agent.state == AgentState.DELETED
    if not burned and not deleted:
        return JudgedSuspect(suspect, OrphanVerdict.LIVING, "", *known)
    if operation.ended_at is None:
        return JudgedSuspect(suspect, OrphanVerdict.LIVING, "its operation is open", *known)
    where = (str(intent.operation), intent.step)
    if await plane.store.find(TombstoneRecord, where) is not None:
        return JudgedSuspect(suspect, OrphanVerdict.WATCHED, "", *known)
    why = "its key is burned" if burned else "its agent is deleted"
    return JudgedSuspect(suspect, OrphanVerdict.ORPHAN, why, *known)


async def _report_unknown(this_pass: Pass, unknown: Sequence[JudgedSuspect], overflow: int) -> None:
    """Report resources that our records cannot judge; they are never removed."""
    for one in unknown[:REPORTED_MAX]:
        slot, owned = one.suspect
        await this_pass.report(
            FindingKind.UNVERIFIABLE, f"{slot} {owned.key}",
            f"{slot} {owned.key} is labelled as ours, and {one.why}; it is not removed",
            about=one.about, details={"provider": slot, "generation": owned.generation},
        )  # fmt: skip
    left = len(unknown) - REPORTED_MAX + overflow
    if left > 0:
        what = f"{left} more resources are unknown to our records"
        await this_pass.report(
            FindingKind.UNVERIFIABLE, "more", what, about=ABOUT_PLANE, details={"left": left}
        )


async def _report_still_listed(plane: Plane, this_pass: Pass, one: JudgedSuspect) -> None:
    """Report a resource that was removed here and that its provider still lists."""
    slot, owned = one.suspect
    finding_key = f"{slot} {owned.key}"
    if await findings.find(plane, this_pass.reconciler, finding_key) is not None:
        await this_pass.report(
            FindingKind.DRIFT, finding_key,
            f"{finding_key} was removed, and its provider still lists it",
            about=one.about, details={"provider": slot},
        )  # fmt: skip


async def _remove_orphan(
    plane: Plane, this_pass: Pass, one: JudgedSuspect, breaker: ProviderBreaker
) -> tuple[int, float | None]:
    """Remove one orphan if it was seen often and long enough; else return when to check again."""
    (slot, owned), now = one.suspect, plane.store.now()
    finding_key, what = f"{slot} {owned.key}", f"{slot} {owned.key} has no owner: {one.why}"
    before = await findings.find(plane, this_pass.reconciler, finding_key)
    sightings = 1 if before is None else before.sightings + 1
    since = now if before is None else before.first_seen
    removable_at = max(since + APART_SECONDS, owned.since + GRACE_SECONDS)
    too_early = sightings < SIGHTINGS or now < removable_at
    if too_early or this_pass.read_only or breaker.skips(slot, owned.key):
        await this_pass.report(
            FindingKind.DRIFT, finding_key, what, about=one.about, details={"provider": slot}
        )
        return 0, max(removable_at, now) if too_early and not this_pass.read_only else None
    key = _key(plane, one)
    try:
        async with breaker.call(slot, owned.key):
            seen = await plane.providers[slot].inspect(key)
            there = seen.presence not in {Presence.ABSENT, Presence.FOREIGN}
            if not there or seen.generation not in {0, owned.generation}:
                return 0, None  # the list was old, or the resource has another owner by now
            if not await _commit_removal(plane, this_pass, one, finding_key, what):
                return 0, None
            await plane.providers[slot].remove(key)
    except (ProviderError, TimeoutError) as error:
        await this_pass.report(
            FindingKind.DRIFT, finding_key, f"{what}; it could not be removed: {error!r}",
            about=one.about, details={"provider": slot},
        )  # fmt: skip
        return 0, None
    return 1, None


async def _commit_removal(
    plane: Plane, this_pass: Pass, one: JudgedSuspect, finding_key: str, what: str
) -> bool:
    """Commit the intent to remove it, if our records are unchanged and this process still leads."""
    intent, agent = cast(IntentRecord, one.intent), cast(AgentRecord, one.agent)
    where = (str(intent.operation), intent.step)
    guards = (
        *this_pass.fence(),
        Is.of(intent, "state"),
        Is.of(agent, "state"),
    )
    now = plane.store.now()
    burn = burn_intent(*where)
    touch = touch_operation(where[0], now)  # kept from now on: `retention`
    writes: Writes = (burn, touch, *tombstones([where], now))
    finding = await this_pass.report(
        FindingKind.CONFIRMED, finding_key, f"{what}; it is removed", about=one.about,
        guards=guards, writes=writes,
        details={"provider": one.suspect.slot, "token": this_pass.token},
    )  # fmt: skip
    return finding is not None


def _key(plane: Plane, one: JudgedSuspect) -> ResourceKey:
    intent, operation = cast(IntentRecord, one.intent), cast(OperationRecord, one.operation)
    slot, owned = one.suspect
    return resource_key(
        plane.id, tenant=operation.tenant, agent=owned.agent, generation=owned.generation,
        slot=slot, name=intent.step, text=owned.key,
    )  # fmt: skip
