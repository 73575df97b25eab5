"""Steps that the plans of the lifecycle share: one port call for each do and undo, or a few.

Fresh values are earlier results: what an agent holds is the result of its `turn`, and later steps
remove exactly that.  A resource that an earlier operation made is removed by its own key.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tenure.core.endings import Done, Ending, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.instant import in_utc
from tenure.core.limits import DETAIL_CHARACTERS_MAX, YEARS, StepLimits
from tenure.core.operation import ACKNOWLEDGED
from tenure.core.plan import Step, StepKind, nothing, repeat
from tenure.plans.steps import unless_foreign
from tenure.ports.credentials import Credentials
from tenure.ports.identity import Authorization
from tenure.ports.provider import Call, Presence, Provider, Spec
from tenure.ports.runtime import RuntimeProvider

READY_SECONDS_MAX = 3_600.0
"""The most that an agent's spec may give its runtime to become ready."""
UNASKED_SECONDS = 600.0
POLL_SECONDS = 0.25
CUT_POLL_SECONDS = 0.05
CUT_SECONDS = 2.0
"""For invocations that were cut to end, in this process or another."""
WAIT_SECONDS = 2.0
"""How long one look at a runtime that is starting waits for it, so that ready is told at once."""
REASON_CHARACTERS_MAX = 200
"""So that there is room for what was printed last."""
NAMED_MAX = 5
"""Agents or subscribers named while they are waited for."""

Plain = Mapping[str, Any]


def runtime_of(call: Call) -> RuntimeProvider:
    """The provider of runtimes."""
    return cast(RuntimeProvider, call.providers["runtime"])


def spec_of(call: Call) -> Plain:
    """What the agent should be."""
    return cast(Plain, call.input["spec"])


def said(call: Call, step: str) -> Plain:
    """What an earlier step returned."""
    return cast(Plain, call.results[step])


def held_in(call: Call, slot: str) -> Sequence[Plain]:
    """What the agent held in this slot when its turn came."""
    holds = cast("Mapping[str, Sequence[Plain]]", said(call, "turn")["holds"])
    return holds.get(slot, ())


def key_of(call: Call, slot: str, held: Plain) -> ResourceKey:
    """The key of what an earlier operation made."""
    key = call.key
    return resource_key(
        key.plane, tenant=key.tenant, agent=key.agent, generation=held["generation"],
        slot=slot, name=held["step"], text=held["key"],
    )  # fmt: skip


def runtime_key(call: Call) -> ResourceKey:
    """The key of the runtime that this very operation makes."""
    key = call.key
    return resource_key(
        key.plane, tenant=key.tenant, agent=key.agent, generation=key.generation,
        slot="runtime", name="runtime",
    )  # fmt: skip


# --- whose turn it is -----------------------------------------------------------------------------


async def _take_turn(call: Call) -> Ending:
    was, after = str(call.input["was"]), str(call.input["after"])
    lock = await call.plane.acquire_lock(call.key.agent, call.operation, was=was, after=after)
    if lock.holder:
        return NotYet(POLL_SECONDS, f"waits for operation {lock.holder} to end")
    if lock.refused:
        raise Rejected(f"its turn came in vain: {lock.refused}")
    holds = {slot: [dict(one) for one in some] for slot, some in lock.holds.items()}
    return Done({"was": lock.was, "holds": holds})


def turn(kind: StepKind = StepKind.COMPENSATABLE) -> Step:
    """Wait until no other operation works on the agent; learn how it stood and what it holds."""
    undo = nothing if kind is StepKind.COMPENSATABLE else None
    limits = StepLimits(deadline_seconds=YEARS)
    return Step("turn", _take_turn, undo, repeat, kind=kind, limits=limits)


# --- a runtime ------------------------------------------------------------------------------------


async def _await_ready(call: Call) -> Ending:
    """READY at one look, also at one later than the deadline, is done."""
    runtime, made = runtime_of(call), said(call, "runtime")
    key = key_of(call, "runtime", made) if made.get("kept") else runtime_key(call)
    ready_seconds = float(spec_of(call)["runtime"].get("ready_seconds", 60.0))
    left = call.since + ready_seconds - call.now
    status = await runtime.wait_ready(key, seconds=max(0.0, min(left, WAIT_SECONDS)))
    match status.presence:
        case Presence.READY:
            return Done()
        case Presence.STARTING if left > WAIT_SECONDS:
            return NotYet(POLL_SECONDS, status.said)
        case Presence.STARTING:
            why = f"the runtime is not ready after {ready_seconds:g} s"
        case _:
            why = "the runtime broke before it was ready"
    raise Rejected(_with_last_words(why, status.said, name=str(call.input["name"])))


def _with_last_words(why: str, said: str, *, name: str) -> str:
    """Why, with the runtime's reason, where all it printed is, and whole lines of its end.

    Of a last line that is too long alone its end is told.
    """
    reason, _, printed = said.partition("\n")
    head = f"{why}: {reason}"[:REASON_CHARACTERS_MAX] if reason else why
    head = f"{head}; all it printed: tenure agent logs {name}"
    printed = printed.rstrip()
    last = printed[-(DETAIL_CHARACTERS_MAX - len(head) - 1) :]
    if len(last) < len(printed) and "\n" in last:
        last = last.partition("\n")[2]
    return f"{head}\n{last}" if last else head


def ready() -> Step:
    """Wait until the runtime answers; refused at its deadline, with its last words.

    The step's own deadline is for a provider that cannot even be asked.
    """
    limits = StepLimits(deadline_seconds=READY_SECONDS_MAX + UNASKED_SECONDS)
    return Step("runtime_ready", _await_ready, nothing, repeat, limits=limits, provider="runtime")


async def _drain(call: Call) -> Ending:
    """Nothing new starts, since the agent is closed; what is in flight is waited for.

    Past the deadline nobody is asked any more: a runtime that cannot be asked ends it too, and what
    is in flight is cut, also when the runtime is kept.  That takes a moment in another process; one
    that stands still is not waited for.
    """
    until = call.since + float(cast(float, call.input["drain_seconds"]))
    in_flight = call.plane.in_flight(call.key.agent)
    busy = [f"{in_flight} invocations in flight"] if in_flight else []
    if call.now >= until:
        call.plane.cut(call.key.agent)
        if in_flight and call.now < until + CUT_SECONDS:
            return NotYet(CUT_POLL_SECONDS, f"cuts {in_flight} invocations in flight")
        return Done({"forced": True, "busy": busy})
    for held in held_in(call, "runtime"):
        status = await runtime_of(call).status(key_of(call, "runtime", held))
        if status.presence is Presence.READY and status.busy:
            busy.append("the runtime says it is busy")
    if not busy:
        return Done({"forced": False})
    return NotYet(min(POLL_SECONDS, until - call.now), f"drains: {', '.join(busy)}")


def drained() -> Step:
    """Let work in flight finish until the drain deadline; then go on without it."""
    limits = StepLimits(deadline_seconds=YEARS)
    return Step("drained", _drain, nothing, repeat, limits=limits, provider="runtime")


# --- closing and opening --------------------------------------------------------------------------


async def _shut(call: Call) -> Ending:
    """From here on nothing is minted, and what was minted before is void.

    Providers are told two epochs for each of the agent's: the odd one shuts, so that an opening of
    the same operation that arrives after its undo changes nothing.
    """
    key, epoch = call.key, 2 * int(cast(int, call.input["epoch"])) + 1
    credentials = cast(Credentials, call.providers["credentials"])
    identity = cast(Authorization, call.providers["identity"])
    try:
        await credentials.close_agent(key.tenant, key.agent, epoch=epoch)
        await identity.raise_epoch(key.tenant, key.agent, epoch=epoch, closed=True)
    except Rejected as error:  # an earlier call, or half of this one, may have been applied
        raise OutcomeUnknown(str(error)) from None
    return Done()


async def _open(call: Call) -> Ending:
    key, epoch = call.key, 2 * int(cast(int, call.input["epoch"]))
    credentials = cast(Credentials, call.providers["credentials"])
    identity = cast(Authorization, call.providers["identity"])
    await identity.raise_epoch(key.tenant, key.agent, epoch=epoch)
    await credentials.reopen_agent(key.tenant, key.agent, epoch=epoch)
    return Done()


def closed(kind: StepKind) -> Step:
    """Revoke: nothing is minted for the agent, and its tokens are void."""
    return Step("closed", _shut, None, repeat, kind=kind, provider="credentials")


def opened() -> Step:
    """Take that back; its undo closes again."""
    return Step("opened", _open, _shut, repeat, provider="credentials")


# --- taking away what is there --------------------------------------------------------------------


def removed(name: str, slot: str, *, unless: Callable[[Call], bool] = lambda _: False) -> Step:
    """Remove everything the agent held in a slot when its turn came."""

    async def remove(call: Call) -> Ending:
        if unless(call):
            return Done()
        provider: Provider = call.providers[slot]
        gone: list[tuple[str, str]] = []
        for held in held_in(call, slot):
            key = key_of(call, slot, held)
            await unless_foreign(provider, key, provider.remove)
            gone.append((held["operation"], held["step"]))
        return Done({"removed": len(gone)}, burned=tuple(gone))

    return Step(name, remove, None, repeat, kind=StepKind.RETRIABLE, provider=slot)


# --- whoever must have heard of it ----------------------------------------------------------------


async def _await_acknowledged(call: Call) -> Ending:
    """Parked until one more of them says so: no timer, and what came early counts."""
    missing = await call.plane.unacknowledged(call.operation)
    if not missing:
        return Done()
    named = ", ".join(f"{one.name} since {in_utc(one.since)}" for one in missing[:NAMED_MAX])
    more = f" and {len(missing) - NAMED_MAX} more" if len(missing) > NAMED_MAX else ""
    return Waiting(ACKNOWLEDGED, f"waits for the acknowledgement of {named}{more}")


def acknowledged() -> Step:
    """Wait until every required subscriber has acknowledged; last, so that all is safe before."""
    limits = StepLimits(deadline_seconds=YEARS)
    return Step(
        "acknowledged", _await_acknowledged, None, repeat, kind=StepKind.RETRIABLE, limits=limits,
    )  # fmt: skip


# --- exposure -------------------------------------------------------------------------------------


async def _expose(_: Call) -> Ending:
    return Done()


EXPOSED = Step("exposed", _expose, None, repeat, kind=StepKind.PIVOT)
"""The record of this step makes the agent READY in the same commit: nothing is exposed before."""


def identity_spec(call: Call) -> Spec:
    """What the identity provider is told of an agent."""
    spec = spec_of(call)
    wanted = spec.get("credentials", ())
    scopes = sorted({scope for one in wanted for scope in one.get("scopes", ())})
    audiences = sorted({one["audience"] for one in wanted})
    return {
        "name": spec["name"], "owner": spec.get("owner", ""), "scopes": scopes,
        "audiences": audiences,
    }  # fmt: skip


def access_spec(call: Call) -> Spec:
    """What the access provider is told."""
    spec = spec_of(call)
    return {
        "roles": list(spec.get("roles", ())), "teams": list(spec.get("teams", ())),
        "granted_by": str(call.input["principal"]),
    }  # fmt: skip


def runtime_spec(call: Call) -> Spec:
    """What the runtime provider is told: the agent's own words, with the digests of its bytes."""
    return cast(Spec, call.input["runtime"])


def credentials_spec(call: Call) -> Spec:
    """What the credentials provider is told."""
    wanted = [
        {"audience": one["audience"], "scopes": list(one.get("scopes", ())),
         "ttl_seconds": one.get("ttl_seconds", 300)}
        for one in spec_of(call).get("credentials", ())
    ]  # fmt: skip
    return {"credentials": wanted}
