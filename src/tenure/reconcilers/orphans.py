"""Every owned resource has a living owner.

What a provider lists as ours is compared with the store, the provider first: what was created while
the list was made is in the store by the time that is asked.  A resource is removed only if our own
records say that its key is burned or its agent deleted; if it was so at two looks, and is older
than a grace; if it is still there under the generation that was listed; and if the commit that
intends the removal finds our records unchanged and this process still leading.  That commit leaves
a tombstone, so a crash after it is finished by the reconciler of late arrivals.

What our records have never heard of, or what is newer than they are, is reported and never removed:
it is the store that is out of date then, not the world.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, cast

from tenure.app.operations.tombstones import tombstones
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.core import decisions
from tenure.core.agent import AgentState
from tenure.core.errors import ProviderError
from tenure.core.finding import FindingKind
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.limits import LATE_SECONDS, PAGE_MAX
from tenure.core.operation import IntentState
from tenure.core.records import IntentRecord, OperationRecord, TombstoneRecord
from tenure.ports.provider import OwnedResource, Presence, Provider
from tenure.ports.store import Is, Row, Set, Writes
from tenure.reconcilers.circuit_breaker import Silence
from tenure.reconcilers.term import NOBODY, FindingSubject, Term, Tick

SENTENCE = "Every owned resource has a living owner."
NAME = "orphans"
CHUNK = 100
"""Resources compared at once."""
REST_SECONDS = 0.012
"""How long others have the loop after a chunk, if they have committed since the one before."""
GRACE_SECONDS = LATE_SECONDS
"""How old a resource must be to be removed: a call that made it may still be under way."""
SIGHTINGS = 2
APART_SECONDS = 10.0
"""From the first sighting to the one that counts."""
CAP_LEAST, CAP_SHARE = 5, 0.1
"""More orphans than this, of all that is there, and something else is wrong: none is removed."""
SILENT_SECONDS = 60.0
"""How long a provider may say nothing while it lists."""
SUSPECTS_MAX = 10_000
REPORTED_MAX = 100
"""Findings of one kind that one look writes; how many more there were is told in one."""


class OrphanVerdict(StrEnum):
    """What our records say of a resource that no living agent claims."""

    LIVING = "living"
    ORPHAN = "orphan"
    WATCHED = "watched"
    """Its key was burned lately: the reconciler of late arrivals sees to it."""
    UNKNOWN = "unknown"
    """Our records have never heard of it, or are older than it is."""


class Suspect(NamedTuple):
    """A resource without a claim, as its provider has listed it."""

    slot: str
    owned: OwnedResource


class JudgedSuspect(NamedTuple):
    """A suspect with what our records say of it."""

    suspect: Suspect
    verdict: OrphanVerdict
    why: str = ""
    agent: Row | None = None
    operation: OperationRecord | None = None
    intent: IntentRecord | None = None

    @property
    def about(self) -> FindingSubject:
        """Whose it is, as far as we know."""
        tenant = "" if self.agent is None else str(self.agent["tenant"])
        return FindingSubject(tenant, self.suspect.owned.agent, self.suspect.owned.key)


@dataclass(slots=True)
class _Pass:
    """What a look has seen so far."""

    seen: int = 0
    suspects: list[Suspect] = field(default_factory=list)
    uncounted: int = 0
    whole: bool = True


async def tick(plane: Plane, *, limit: int = 500, term: Term | None = None) -> Tick:
    """Compare what every provider lists with the store; remove what is certainly nobody's."""
    term = term or Term(plane, NAME)
    done = _Pass()
    for slot, provider in plane.providers.items():
        await _compare(plane, term, slot, provider, done)
    judged: list[JudgedSuspect] = []
    for suspect in done.suspects:
        judged.append(await judge(plane, suspect))
        await asyncio.sleep(0)
    orphans = [one for one in judged if one.verdict is OrphanVerdict.ORPHAN]
    unknown = [one for one in judged if one.verdict is OrphanVerdict.UNKNOWN]
    await _quarantine(term, unknown, done.uncounted)
    for one in judged:
        if one.verdict is OrphanVerdict.WATCHED:
            await _still_there(plane, term, one)
    fixed, again = 0, None
    if len(orphans) + done.uncounted > cap(done.seen):
        what = f"{len(orphans) + done.uncounted} of {done.seen} resources have no owner: too many"
        await term.report(
            FindingKind.UNVERIFIABLE,
            "halted",
            f"{what}; none is removed before a person has looked",
            about=NOBODY,
            said={"orphans": [one.suspect.owned.key for one in orphans[:REPORTED_MAX]]},
        )
    else:
        silence = Silence(plane, NAME)
        orphans.sort(key=lambda one: silence.turn(one.suspect.owned.key))
        for one in orphans[:limit]:
            removed, later = await _sweep(plane, term, one, silence)
            fixed += removed
            again = min((at for at in (again, later) if at is not None), default=None)
    if done.whole:
        await term.settle_unseen()
    return Tick(done.seen, fixed, again)


def cap(seen: int) -> float:
    """The most orphans that are believed, among so many resources."""
    return max(CAP_LEAST, CAP_SHARE * seen)


async def _compare(plane: Plane, term: Term, slot: str, provider: Provider, done: _Pass) -> None:
    """List one provider, and for each part of the list ask the store who lives."""
    loop = asyncio.get_running_loop()
    chunk: list[OwnedResource] = []
    told = plane.commits.number
    try:
        async with asyncio.timeout(SILENT_SECONDS) as patience:
            async for owned in provider.list_owned(plane.id):
                chunk.append(owned)
                if len(chunk) >= CHUNK:
                    await _claims(plane, slot, chunk, done)
                    chunk = []
                    told, before = plane.commits.number, told
                    await asyncio.sleep(REST_SECONDS if told != before else 0)
                    patience.reschedule(loop.time() + SILENT_SECONDS)
    except (ProviderError, TimeoutError) as error:
        done.whole = False
        await term.report(
            FindingKind.UNVERIFIABLE,
            f"list {slot}",
            f"provider {slot} could not be listed: {error!r}",
            about=NOBODY,
            said={"provider": slot},
        )
    await _claims(plane, slot, chunk, done)


async def _claims(plane: Plane, slot: str, chunk: Sequence[OwnedResource], done: _Pass) -> None:
    living = await plane.store.list_living(slot, [(one.agent, one.generation) for one in chunk])
    done.seen += len(chunk)
    for one in chunk:
        if one.key not in living:
            if len(done.suspects) < SUSPECTS_MAX:
                done.suspects.append(Suspect(slot, one))
            else:
                done.uncounted += 1


async def judge(plane: Plane, suspect: Suspect) -> JudgedSuspect:
    """Read all that our records say of a resource that nobody living claims."""
    owned = suspect.owned
    agent = await plane.store.find("agent", (owned.agent,))
    if agent is None:
        return JudgedSuspect(suspect, OrphanVerdict.UNKNOWN, "our records know no such agent")
    if owned.generation > cast(int, agent["generation"]):
        why = f"generation {owned.generation} is newer than our records"
        return JudgedSuspect(suspect, OrphanVerdict.UNKNOWN, why, agent)
    said: Row = {"agent": owned.agent, "generation": owned.generation}
    for operation in await plane.store.list_rows(OperationRecord, said, limit=PAGE_MAX):
        found = await plane.store.list_rows(IntentRecord, {"operation": operation.id})
        for intent in found:
            if intent.key == owned.key and intent.slot == suspect.slot:
                return await _judged(plane, suspect, agent, operation, intent)
    return JudgedSuspect(suspect, OrphanVerdict.UNKNOWN, "our records know no such key", agent)


async def _judged(
    plane: Plane, suspect: Suspect, agent: Row, operation: OperationRecord, intent: IntentRecord
) -> JudgedSuspect:
    known = (agent, operation, intent)
    burned, deleted = intent.state == IntentState.BURNED, agent["state"] == AgentState.DELETED
    if not burned and not deleted:
        return JudgedSuspect(suspect, OrphanVerdict.LIVING, "", *known)
    if operation.ended_at is None:
        return JudgedSuspect(suspect, OrphanVerdict.LIVING, "its operation is under way", *known)
    where = (str(intent.operation), intent.step)
    if await plane.store.find(TombstoneRecord, where) is not None:
        return JudgedSuspect(suspect, OrphanVerdict.WATCHED, "", *known)
    why = "its key is burned" if burned else "its agent is deleted"
    return JudgedSuspect(suspect, OrphanVerdict.ORPHAN, why, *known)


async def _quarantine(term: Term, unknown: Sequence[JudgedSuspect], uncounted: int) -> None:
    """Report what our records cannot judge; it is never removed."""
    for one in unknown[:REPORTED_MAX]:
        slot, owned = one.suspect
        await term.report(
            FindingKind.UNVERIFIABLE, f"{slot} {owned.key}",
            f"{slot} {owned.key} carries our label, and {one.why}; it is left alone",
            about=one.about, said={"provider": slot, "generation": owned.generation},
        )  # fmt: skip
    left = len(unknown) - REPORTED_MAX + uncounted
    if left > 0:
        what = f"{left} more resources are unknown to our records"
        await term.report(FindingKind.UNVERIFIABLE, "more", what, about=NOBODY, said={"left": left})


async def _still_there(plane: Plane, term: Term, one: JudgedSuspect) -> None:
    """What was removed here and is still listed is not clean, whatever its provider has said."""
    slot, owned = one.suspect
    subject = f"{slot} {owned.key}"
    if await findings.find(plane, term.reconciler, subject) is not None:
        await term.report(
            FindingKind.DRIFT, subject, f"{subject} was removed, and its provider still lists it",
            about=one.about, said={"provider": slot},
        )  # fmt: skip


async def _sweep(
    plane: Plane, term: Term, one: JudgedSuspect, silence: Silence
) -> tuple[int, float | None]:
    """Remove one orphan if it was seen often and long enough; else when to look again."""
    (slot, owned), now = one.suspect, plane.store.now()
    subject, what = f"{slot} {owned.key}", f"{slot} {owned.key} has no owner: {one.why}"
    before = await findings.find(plane, term.reconciler, subject)
    sightings = 1 if before is None else before.sightings + 1
    since = now if before is None else before.first_seen
    ripe_at = max(since + APART_SECONDS, owned.since + GRACE_SECONDS)
    unripe = sightings < SIGHTINGS or now < ripe_at
    if unripe or term.read_only or silence.passes_over(slot, owned.key):
        await term.report(
            FindingKind.DRIFT, subject, what, about=one.about, said={"provider": slot}
        )
        return 0, max(ripe_at, now) if unripe and not term.read_only else None
    key = _key(plane, one)
    try:
        async with silence.asking(slot, owned.key):
            seen = await plane.providers[slot].inspect(key)
            there = seen.presence not in {Presence.ABSENT, Presence.FOREIGN}
            if not there or seen.generation not in {0, owned.generation}:
                return 0, None  # the list was old, or it is somebody else's by now
            if not await _intend(plane, term, one, subject, what):
                return 0, None
            await plane.providers[slot].remove(key)
    except (ProviderError, TimeoutError) as error:
        await term.report(
            FindingKind.DRIFT, subject, f"{what}; it could not be removed: {error!r}",
            about=one.about, said={"provider": slot},
        )  # fmt: skip
        return 0, None
    return 1, None


async def _intend(plane: Plane, term: Term, one: JudgedSuspect, subject: str, what: str) -> bool:
    """Commit that it is to be removed, if our records still say so and this process leads."""
    intent, agent = cast(IntentRecord, one.intent), cast(Row, one.agent)
    where = (str(intent.operation), intent.step)
    guards = (
        *term.fence(),
        Is("intent", where, {"state": intent.state}),
        Is("agent", (str(agent["uid"]),), {"state": agent["state"]}),
    )
    now = plane.store.now()
    burn = Set("intent", where, decisions.REMOVED)
    touch = Set("operation", (where[0],), {"updated_at": now})  # kept from now on: `retention`
    writes: Writes = (burn, touch, *tombstones([where], now))
    kept = await term.report(
        FindingKind.CONFIRMED, subject, f"{what}; it is removed", about=one.about, guards=guards,
        writes=writes, said={"provider": one.suspect.slot, "token": term.token},
    )  # fmt: skip
    return kept is not None


def _key(plane: Plane, one: JudgedSuspect) -> ResourceKey:
    intent, operation = cast(IntentRecord, one.intent), cast(OperationRecord, one.operation)
    slot, owned = one.suspect
    return resource_key(
        plane.id, tenant=operation.tenant, agent=owned.agent, generation=owned.generation,
        slot=slot, name=intent.step, text=owned.key,
    )  # fmt: skip
