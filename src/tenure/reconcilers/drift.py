"""What providers report is what we recorded.

Agents that are at rest are looked at in turn, as many at a look as it may, and first those that
something was found about.  What differs is put right where the agent's spec, or else the plane,
says `repair`: a runtime that died is replaced by the plan `recover_runtime`, anything else that is
gone is made again under its own key.  Nothing is done on one look alone, and what fails is tried
again less and less often.  A provider that cannot be asked is not clean: that is a finding too.

A new runtime has a new key, which nobody has burned.  So a dead one is replaced only if at the same
look all else of the agent is there and open: else it was deleted or suspended where our records do
not tell of it, as after a restore, and does not come back.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from tenure.app import agents, findings
from tenure.app.agent_views import holdings_of, kept_spec, key_of
from tenure.app.edges import GOING
from tenure.app.live import decode, read
from tenure.app.plane import Plane
from tenure.core.agent import State
from tenure.core.errors import CallerError, ProviderError, Rejected
from tenure.core.finding import Kind
from tenure.core.ids import ResourceKey
from tenure.core.limits import doubled
from tenure.core.operation import OPERATION
from tenure.core.roles import Caller, Role
from tenure.ports.credentials import Credentials
from tenure.ports.provider import Call, Observed, Presence
from tenure.ports.store import Row
from tenure.reconcilers.silence import LOOK_SECONDS, Silence
from tenure.reconcilers.term import About, Term, Tick

SENTENCE = "What providers report is what we recorded."
NAME = "drift"
AT_ONCE = 16
"""Agents that are looked at side by side."""
SILENT = f"it said nothing for {LOOK_SECONDS:.0f} s"
SOON_SECONDS = 3.0
"""From the first sighting to the second."""
SIGHTINGS = 2
THERE = (Presence.READY, Presence.STARTING)
LAPSE_SECONDS = 7 * 86_400.0
"""How long before its end a registration is told of."""
AGAIN_SECONDS, AGAIN_CAP_SECONDS = 30.0, 3_600.0
"""Between attempts to put something right; doubled at each, up to the cap."""
RUNTIME, CREDENTIALS = "runtime", "credentials"
DELETED = (
    "the agent looks deleted elsewhere, perhaps since the backup that was restored."
    " Nothing of it is made anew: tenure agent delete {name}"
)
SUSPENDED = (
    "its credentials are shut: the agent looks suspended elsewhere, perhaps since the backup that"
    " was restored. It is not started again: tenure agent suspend {name}, and tenure agent resume"
    " {name} if it shall run"
)


class Held(NamedTuple):
    """Something an agent holds by our records, and what its provider says of it."""

    slot: str
    key: ResourceKey
    operation: str
    seen: Observed | None
    """None: it could not be asked, or was not."""
    error: str = ""


async def tick(plane: Plane, *, limit: int = 500, term: Term | None = None) -> Tick:
    """Look at so many agents, and go on with the others at the next look."""
    term = term or Term(plane, NAME)
    opened = await findings.list_open(plane, term.reconciler)
    first = list(dict.fromkeys(str(row["agent"]) for row in opened))[:limit]
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
        if str(row["agent"]) in clean or not await _is_held(plane, row):
            await term.settle(row)
    return Tick(len(uids), fixed, min(again, default=None))


async def _is_held(plane: Plane, finding: Row) -> bool:
    """Whether, by our records, the agent still holds what was found to differ."""
    holds = await holdings_of(plane, str(finding["tenant"]), str(finding["agent"]))
    return any(one["key"] == finding["resource"] for some in holds.values() for one in some)


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
    if row is None or row["operation"] is not None or row["next"] is not None:
        return row is None, 0, None  # an operation works on it: what it holds is about to change
    if State(str(row["state"])) not in {State.READY, State.SUSPENDED}:
        return True, 0, None
    sure, fixed, again = True, 0, None
    everything = await _held(plane, row, silence)
    left = await _left_alone(plane, row, everything, silence)
    for held in everything:
        if held.seen is None:
            sure = False
            if held.error:
                said = f"cannot be asked: {held.error}"
                await _report(term, row, held, Kind.UNVERIFIABLE, said)
            continue
        what = _differs(plane, row, held, held.seen)
        if what is None:
            continue
        kind, said, repairable = what
        if why := left.get(held.slot):
            await _report(term, row, held, kind, f"{said}; {why}")
        elif repairable and _may_repair(term, row):
            repaired, later = await _repair(plane, term, row, held, said)
            fixed += repaired
            again = later if again is None else min(again, later or again)
        else:
            await _report(term, row, held, kind, said)
    return sure, fixed, again


async def _held(plane: Plane, row: Row, silence: Silence) -> list[Held]:
    """What our records say that the agent holds, with what its providers say."""
    uid = str(row["uid"])
    serving = cast("dict[str, Any]", decode(cast(str, row["serving"]))) if row["serving"] else {}
    found: list[Held] = []
    for slot, holds in (await holdings_of(plane, str(row["tenant"]), uid)).items():
        for one in holds:
            if one["key"] == serving.get("instead_of") or slot not in plane.providers:
                continue
            held = Held(slot, key_of(plane, row, slot, one), str(one["operation"]), None)
            if not silence.passes_over(slot, uid):
                held = await _asked(plane, held, silence)
            found.append(held)
    return found


async def _asked(plane: Plane, held: Held, silence: Silence) -> Held:
    """The same with what its provider says of it now."""
    try:
        async with silence.asking(held.slot, held.key.agent):
            return held._replace(seen=await plane.providers[held.slot].inspect(held.key))
    except TimeoutError:
        return held._replace(error=SILENT)
    except ProviderError as error:
        return held._replace(error=repr(error))


async def _left_alone(
    plane: Plane, row: Row, everything: list[Held], silence: Silence
) -> Mapping[str, str]:
    """Slots in which nothing is made anew though it is gone, and why: see above."""
    dead = {
        held.seen.presence for held in everything
        if held.slot == RUNTIME and held.seen is not None
    } & {Presence.ABSENT, Presence.BROKEN}  # fmt: skip
    if not dead or row["state"] != State.READY:
        return {}
    others = [held for held in everything if held.slot != RUNTIME]
    gone = [held.slot for held in others if held.seen and held.seen.presence is Presence.ABSENT]
    if gone and Presence.ABSENT in dead:
        return dict.fromkeys((RUNTIME, *gone), DELETED.format(name=row["name"]))
    is_open = None
    if all(held.seen and held.seen.presence in THERE for held in others):
        is_open = await _is_open(plane, row, silence)
    if is_open is None:
        return {RUNTIME: "it is not replaced before all else of the agent is seen as recorded"}
    return {} if is_open else {RUNTIME: SUSPENDED.format(name=row["name"])}


async def _is_open(plane: Plane, row: Row, silence: Silence) -> bool | None:
    """Whether anything may be minted for the agent; None if that cannot be told."""
    uid, provider = str(row["uid"]), cast(Credentials, plane.providers[CREDENTIALS])
    try:
        async with silence.asking(CREDENTIALS, uid):
            return await provider.is_open(str(row["tenant"]), uid)
    except (TimeoutError, ProviderError):
        return None


def _differs(
    plane: Plane, row: Row, held: Held, seen: Observed
) -> tuple[Kind, str, bool] | None:
    """How sure it is that something is not as recorded, what, and whether it can be put right."""
    match seen.presence:
        case Presence.READY | Presence.STARTING:
            lapses_at = seen.reference.get("lapses_at")
            if isinstance(lapses_at, int | float):
                left = lapses_at - plane.store.now()
                if left < LAPSE_SECONDS:
                    return Kind.CONFIRMED, f"lapses in {max(0.0, left) / 3_600:.0f} h", False
            return None
        case Presence.FOREIGN:
            return Kind.UNVERIFIABLE, "is somebody else's now", False
        case Presence.BROKEN if held.slot == RUNTIME:
            return Kind.DRIFT, "has died", row["state"] == State.READY
        case Presence.ABSENT if held.slot == RUNTIME:
            return Kind.DRIFT, "is gone", row["state"] == State.READY
        case Presence.BROKEN:
            return Kind.DRIFT, "is broken", False
        case Presence.ABSENT:
            return Kind.DRIFT, "was deleted behind our back", True


def _may_repair(term: Term, row: Row) -> bool:
    policy = kept_spec(row).get("spec", {}).get("on_drift")
    return (term.repairs and policy != "report") or (policy == "repair" and not term.read_only)


async def _report(
    term: Term, row: Row, held: Held, kind: Kind, said: str, **more: object
) -> Row | None:
    what = f"{held.slot} {held.key.text} of agent {row['name']!s} {said}"
    return await term.report(
        kind, f"{row['uid']!s} {held.key.text}", what,
        about=About(str(row["tenant"]), str(row["uid"]), held.key.text),
        said={**more, "provider": held.slot},
    )  # fmt: skip


async def _repair(
    plane: Plane, term: Term, row: Row, held: Held, said: str
) -> tuple[int, float | None]:
    """Put it right at the second sighting, and then less and less often until it is."""
    now = plane.store.now()
    before = await findings.find(plane, term.reconciler, f"{row['uid']!s} {held.key.text}")
    told: Mapping[str, Any] = {} if before is None else findings.body_of(before)
    attempts, again_at = int(told.get("attempts", 0)), float(told.get("again_at", 0.0))
    if before is None or cast(int, before["sightings"]) + 1 < SIGHTINGS:
        await _report(term, row, held, Kind.DRIFT, said)
        return 0, now + SOON_SECONDS
    if now < again_at:
        more = {name: told[name] for name in told if name not in {"what", "provider"}}
        await _report(term, row, held, Kind.DRIFT, said, **more)
        return 0, again_at
    again_at = now + doubled(AGAIN_SECONDS, AGAIN_CAP_SECONDS, attempts)
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
        await _report(term, row, held, Kind.DRIFT, said, **tried)
        return 0, again_at
    await _report(term, row, held, Kind.CONFIRMED, f"{said}; it is being made again", **tried)
    return 1, now + SOON_SECONDS


async def _recover(plane: Plane, term: Term, row: Row) -> str:
    """Ask for the one plan that replaces a runtime; asking twice asks for nothing new."""
    caller = Caller(str(row["tenant"]), f"reconciler {term.reconciler}", Role.OPERATOR)
    uid = str(row["uid"])
    asked = agents.Asked(idempotency_key=f"drift/{uid}/{row['generation']!s}")
    return (await agents.recover_runtime(plane, caller, uid, asked=asked)).id


async def _make_again(plane: Plane, row: Row, held: Held) -> None:
    """Do again the step that made it, under its own key; a key that was burned refuses.

    PlanUnknown if only a newer release knows that step: it repairs once it leads.
    """
    made = await read(plane.store, plane.catalogue, plane.id, held.operation)
    if made is None or made.state not in OPERATION.final:
        raise Rejected(f"operation {held.operation}, which made it, is not over")
    current = await plane.store.find("agent", (str(row["uid"]),))
    if current is None or current["generation"] != row["generation"]:
        raise Rejected("the agent has changed since it was looked at")
    plan = plane.catalogue.restore(made.plan.body(), made.plan.digest)
    done, signals = made.progress.done, made.progress.signals
    given = await _still_granted(plane, made.input)
    call = Call(held.key, given, done, signals, plane.providers)
    async with asyncio.timeout(LOOK_SECONDS):
        await plan.steps[held.key.name].do(call)


async def _still_granted(plane: Plane, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the step was given, without what an agent has granted that is deleted by now."""
    granter = await plane.store.find("agent", (str(given.get("principal", "")),))
    if granter is None or granter["state"] not in GOING:
        return given
    return {**given, "spec": {**given.get("spec", {}), "roles": [], "teams": []}}
