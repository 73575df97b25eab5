"""What providers report is what we recorded.

Agents that are at rest are looked at in turn, as many at a look as it may, and first those that
something was found about.  What differs is put right where the agent's spec, or else the plane,
says `repair`: a runtime that died is replaced by the plan `recover_runtime`, anything else that is
gone is made again under its own key.  Nothing is done on one look alone, and what fails is tried
again less and less often.  A provider that cannot be asked is not clean: that is a finding too.

Which runtimes are replaced, and which are not since their agents look deleted or suspended
elsewhere, is said in `tenure.app.safety.standing`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tenure.app.agents import commands as agents
from tenure.app.agents.ownership import without_ended_grants
from tenure.app.agents.views import holdings_of, stored_spec
from tenure.app.operations.handle import load_handle
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.app.safety.standing import (
    CREDENTIALS,
    RUNTIME,
    AgentResource,
    Standing,
    held_by,
    is_at_rest,
    is_open,
    standing,
)
from tenure.core.agent import AgentState
from tenure.core.errors import CallerError, ProviderError, Rejected
from tenure.core.finding import FindingKind
from tenure.core.operation import OPERATION
from tenure.core.records import FindingRecord
from tenure.core.retry import DRIFT_REPAIR
from tenure.core.roles import Caller, Role
from tenure.ports.provider import Call, Observation, Presence
from tenure.ports.store import Row
from tenure.reconcilers.circuit_breaker import LOOK_SECONDS, Silence
from tenure.reconcilers.term import FindingSubject, Term, Tick

SENTENCE = "What providers report is what we recorded."
NAME = "drift"
AT_ONCE = 16
"""Agents that are looked at side by side."""
SILENT = f"it said nothing for {LOOK_SECONDS:.0f} s"
SOON_SECONDS = 3.0
"""From the first sighting to the second."""
SIGHTINGS = 2
LAPSE_SECONDS = 7 * 86_400.0
"""How long before its end a registration is told of."""
DELETED = (
    "the agent looks deleted elsewhere, perhaps since the backup that was restored."
    " Nothing of it is made anew: tenure agent delete {name}"
)
SUSPENDED = (
    "its credentials are shut: the agent looks suspended elsewhere, perhaps since the backup that"
    " was restored. It is not started again: tenure agent suspend {name}, and tenure agent resume"
    " {name} if it shall run"
)
SHUT = (
    "are shut: the agent looks suspended elsewhere, perhaps since the backup that was restored. It"
    " is READY, and is given none: tenure agent suspend {name}, and tenure agent resume {name} if"
    " it shall run"
)
UNTOLD = "it is not replaced before all else of the agent is seen as recorded"

Difference = tuple[FindingKind, str, bool]
"""How sure it is that something is not as recorded, what, and whether it can be put right."""


async def tick(plane: Plane, *, limit: int = 500, term: Term | None = None) -> Tick:
    """Look at so many agents, and go on with the others at the next look."""
    term = term or Term(plane, NAME)
    opened = await findings.list_open(plane, term.reconciler)
    first = list(dict.fromkeys(row.agent for row in opened))[:limit]
    uids = first + [uid for uid in await _next(plane, limit) if uid not in first]
    silence = Silence(plane, NAME)
    uids.sort(key=silence.turn)
    fixed, clean = 0, set[str]()
    again: list[float] = []
    for start in range(0, len(uids), AT_ONCE):
        looks = [_look(plane, term, uid, silence) for uid in uids[start : start + AT_ONCE]]
        for uid, (sure, repaired, later) in zip(
            uids[start:], await asyncio.gather(*looks), strict=False
        ):
            fixed += repaired
            again += [] if later is None else [later]
            if sure:
                clean.add(uid)
    for row in opened:
        if row.agent in clean or not await _is_held(plane, row):
            await term.settle(row)
    return Tick(len(uids), fixed, min(again, default=None))


async def _is_held(plane: Plane, finding: FindingRecord) -> bool:
    """Whether, by our records, the agent still holds what was found to differ."""
    holds = await holdings_of(plane, finding.tenant, finding.agent)
    return any(one.key == finding.resource for some in holds.values() for one in some)


async def _next(plane: Plane, limit: int) -> list[str]:
    """The next agents by name, from where the last look ended."""
    tenant, _, name = plane.reconciled.cursors.get(NAME, "").partition(" ")
    rows = await plane.store.list_rows("agent_name", {}, after=(tenant, name), limit=limit)
    last = f"{rows[-1]['tenant']!s} {rows[-1]['name']!s}" if len(rows) == limit else ""
    plane.reconciled.cursors[NAME] = last
    return [str(row["agent"]) for row in rows]


async def _look(
    plane: Plane, term: Term, uid: str, silence: Silence
) -> tuple[bool, int, float | None]:
    """Whether all of an agent could be seen, how much was put right, and when to look again."""
    row = await plane.store.find("agent", (uid,))
    if row is None or not is_at_rest(row):
        return row is None, 0, None  # an operation works on it: what it holds is about to change
    if AgentState(str(row["state"])) not in {AgentState.READY, AgentState.SUSPENDED}:
        return True, 0, None
    everything = [await _asked(plane, one, silence) for one in await held_by(plane, row)]
    opened, error = await _is_open(plane, row, everything, silence)
    stands = standing(row, everything, is_open=opened)
    if stands is Standing.SHUT and await _has_changed(plane, row):
        return False, 0, None
    left = _left_alone(row, everything, stands)
    door = _door(row, everything, stands, error)
    sure, fixed, again = opened is not None, 0, None
    for held in everything:
        if held.seen is None:
            sure = False
            if held.error:
                said = f"cannot be asked: {held.error}"
                await _tell(plane, term, row, held, kind=FindingKind.UNVERIFIABLE, said=said)
            continue
        what = _differs(plane, row, held, held.seen)
        if what is None and held.slot == CREDENTIALS:
            what = door
        if what is None:
            continue
        kind, said, repairable = what
        if why := left.get(held.slot):
            await _tell(plane, term, row, held, kind=kind, said=f"{said}; {why}")
        elif repairable and _may_repair(term, row):
            repaired, later = await _repair(plane, term, row, held, said)
            fixed += repaired
            again = later if again is None else min(again, later or again)
        else:
            await _tell(plane, term, row, held, kind=kind, said=said)
    return sure, fixed, again


async def _asked(plane: Plane, held: AgentResource, silence: Silence) -> AgentResource:
    """The same with what its provider says of it now."""
    if silence.passes_over(held.slot, held.key.agent):
        return held
    try:
        async with silence.asking(held.slot, held.key.agent):
            return held._replace(seen=await plane.providers[held.slot].inspect(held.key))
    except TimeoutError:
        return held._replace(error=SILENT)
    except ProviderError as error:
        return held._replace(error=repr(error))


async def _is_open(
    plane: Plane, row: Row, everything: Sequence[AgentResource], silence: Silence
) -> tuple[bool | None, str]:
    """Whether an agent is open that should be, and if that cannot be told, why.

    A provider that has just said nothing of the agent's credentials is not waited for once more.
    """
    uid = str(row["uid"])
    if row["state"] != AgentState.READY:
        return True, ""
    hung = any(one.slot == CREDENTIALS and one.error == SILENT for one in everything)
    if hung or silence.passes_over(CREDENTIALS, uid):
        return None, ""
    try:
        async with silence.asking(CREDENTIALS, uid):
            return await is_open(plane, row), ""
    except TimeoutError:
        return None, SILENT
    except ProviderError as error:
        return None, repr(error)


async def _has_changed(plane: Plane, row: Row) -> bool:
    """Whether an operation has begun since the agent was read: it may be what has shut it."""
    now = await plane.store.find("agent", (str(row["uid"]),))
    return now is None or now["generation"] != row["generation"]


def _left_alone(
    row: Row, everything: Sequence[AgentResource], stands: Standing
) -> Mapping[str, str]:
    """Slots in which nothing is made anew though it is gone, and why."""
    if row["state"] != AgentState.READY:
        return {}
    match stands:
        case Standing.RUNS | Standing.REPLACED:
            return {}
        case Standing.DELETED:
            gone = [one.slot for one in everything if one.is_gone]
            return dict.fromkeys(gone, DELETED.format(name=row["name"]))
        case Standing.SHUT:
            return {RUNTIME: SUSPENDED.format(name=row["name"])}
        case Standing.UNTOLD:
            return {RUNTIME: UNTOLD}


def _door(
    row: Row, everything: Sequence[AgentResource], stands: Standing, error: str
) -> Difference | None:
    """What is not as recorded about an agent's credentials though they are there.

    While its runtime is dead, what is told of that says so.
    """
    if any(one.is_dead for one in everything):
        return None
    if stands is Standing.SHUT:
        return FindingKind.DRIFT, SHUT.format(name=row["name"]), False
    said = f"are there, and whether the agent is open cannot be told: {error}"
    return (FindingKind.UNVERIFIABLE, said, False) if error else None


def _differs(plane: Plane, row: Row, held: AgentResource, seen: Observation) -> Difference | None:
    """What is not as recorded about something that an agent holds."""
    match seen.presence:
        case Presence.READY | Presence.STARTING:
            lapses_at = seen.reference.get("lapses_at")
            if isinstance(lapses_at, int | float):
                left = lapses_at - plane.store.now()
                if left < LAPSE_SECONDS:
                    return FindingKind.CONFIRMED, f"lapses in {max(0.0, left) / 3_600:.0f} h", False
            return None
        case Presence.FOREIGN:
            return FindingKind.UNVERIFIABLE, "is somebody else's now", False
        case Presence.BROKEN if held.slot == RUNTIME:
            return FindingKind.DRIFT, "has died", row["state"] == AgentState.READY
        case Presence.ABSENT if held.slot == RUNTIME:
            return FindingKind.DRIFT, "is gone", row["state"] == AgentState.READY
        case Presence.BROKEN:
            said = "is broken: delete the agent and create it anew"
            return FindingKind.DRIFT, said, False
        case Presence.ABSENT:
            return FindingKind.DRIFT, "was deleted behind our back", True


def _may_repair(term: Term, row: Row) -> bool:
    policy = stored_spec(row).spec.get("on_drift")
    return (term.repairs and policy != "report") or (policy == "repair" and not term.read_only)


def _subject(row: Row, held: AgentResource) -> str:
    return f"{row['uid']!s} {held.key.text}"


async def _report(
    term: Term, row: Row, held: AgentResource, kind: FindingKind, said: str, **more: object
) -> FindingRecord | None:
    what = f"{held.slot} {held.key.text} of agent {row['name']!s} {said}"
    return await term.report(
        kind,
        _subject(row, held),
        what,
        about=FindingSubject(str(row["tenant"]), str(row["uid"]), held.key.text),
        said={**more, "provider": held.slot},
    )


async def _tell(
    plane: Plane, term: Term, row: Row, held: AgentResource, *, kind: FindingKind, said: str
) -> None:
    """Report what is not put right now; what was tried before, and until when, stays known."""
    before = await findings.find(plane, term.reconciler, _subject(row, held))
    await _report(term, row, held, kind, said, **_tried(before))


def _tried(finding: FindingRecord | None) -> dict[str, Any]:
    """What a finding says of attempts to put it right."""
    told: dict[str, Any] = {} if finding is None else findings.body_of(finding)
    return {name: told[name] for name in told if name not in {"what", "provider"}}


async def _repair(
    plane: Plane, term: Term, row: Row, held: AgentResource, said: str
) -> tuple[int, float | None]:
    """Put it right at the second sighting, and then less and less often until it is."""
    now = plane.store.now()
    before = await findings.find(plane, term.reconciler, _subject(row, held))
    so_far = _tried(before)
    attempts, again_at = int(so_far.get("attempts", 0)), float(so_far.get("again_at", 0.0))
    # Nobody has seen it: the provider was not asked, or did not answer.
    unsure = before is None or before.kind == FindingKind.UNVERIFIABLE
    if before is None or unsure or before.sightings + 1 < SIGHTINGS:
        await _report(term, row, held, FindingKind.DRIFT, said, **so_far)
        return 0, now + SOON_SECONDS
    if now < again_at:
        await _report(term, row, held, FindingKind.DRIFT, said, **so_far)
        return 0, again_at
    again_at = now + DRIFT_REPAIR.delay_seconds(attempts)
    tried: dict[str, object] = {"attempts": attempts + 1, "again_at": again_at}
    try:
        if held.slot == RUNTIME:
            tried["operation"] = await _recover(plane, term, row)
        else:
            await _make_again(plane, row, held)
    except (CallerError, ProviderError, TimeoutError) as error:
        tried["error"] = str(error)
        said = f"{said}; it could not be made again"
        if isinstance(error, Rejected) and held.slot != RUNTIME:
            said += ": if that stays so, delete the agent and create it anew"
        await _report(term, row, held, FindingKind.DRIFT, said, **tried)
        return 0, again_at
    await _report(
        term, row, held, FindingKind.CONFIRMED, f"{said}; it is being made again", **tried
    )
    return 1, now + SOON_SECONDS


async def _recover(plane: Plane, term: Term, row: Row) -> str:
    """Ask for the one plan that replaces a runtime; asking twice asks for nothing new."""
    caller = Caller(str(row["tenant"]), f"reconciler {term.reconciler}", Role.OPERATOR)
    uid = str(row["uid"])
    request_options = agents.RequestOptions(idempotency_key=f"drift/{uid}/{row['generation']!s}")
    return (await agents.recover_runtime(plane, caller, uid, request_options=request_options)).id


async def _make_again(plane: Plane, row: Row, held: AgentResource) -> None:
    """Do again the step that made it, under its own key; a key that was burned refuses.

    PlanUnknown if only a newer release knows that step: it repairs once it leads.
    """
    made = await load_handle(plane.store, plane.catalogue, plane.id, held.operation)
    if made is None or made.state not in OPERATION.final:
        raise Rejected(f"operation {held.operation}, which made it, is not over")
    current = await plane.store.find("agent", (str(row["uid"]),))
    if current is None or current["generation"] != row["generation"]:
        raise Rejected("the agent has changed since it was looked at")
    plan = plane.catalogue.restore(made.plan.body(), made.plan.digest)
    done, signals = made.progress.done, made.progress.signals
    values = await without_ended_grants(plane, made.input)
    call = Call(held.key, values, done, signals, plane.providers)
    async with asyncio.timeout(LOOK_SECONDS):
        await plan.steps[held.key.name].do(call)
