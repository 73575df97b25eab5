"""Steps that the plans of the lifecycle share.

The first step of most plans acquires the agent's lock.  Its result lists the resources that the
agent holds, and later steps remove exactly those.  A resource that an earlier operation made is
removed by its own key.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct, field

from tenure.core.agent import AgentState
from tenure.core.endings import Done, Ending, NotYet, Waiting
from tenure.core.errors import OutcomeUnknown, Rejected
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.instant import in_utc
from tenure.core.limits import DETAIL_CHARACTERS_MAX, NO_DEADLINE_SECONDS, StepLimits
from tenure.core.plan import Step, StepKind, nothing, repeat
from tenure.core.subscription import ACKNOWLEDGED
from tenure.plans.agents.inputs import AgentInput, PlainData, QueuedInput, VerbInput
from tenure.plans.steps import end_unless_foreign
from tenure.ports.credentials import Credentials
from tenure.ports.identity import Authorization
from tenure.ports.plane_api import HeldResource, PlaneApi
from tenure.ports.provider import Call, Presence, Provider, Spec
from tenure.ports.runtime import RuntimeProvider

LOCK_STEP: Final = "turn"
"""The name of the step that acquires the agent's lock, as journals store it."""
RUNTIME_STEP: Final = "runtime"
"""The name of the step that starts a runtime, and the slot of its resource."""
READY_SECONDS_MAX = 3_600.0
"""The longest time that an agent's spec may give its runtime to become ready."""
UNREACHABLE_SECONDS = 600.0
"""How much longer a provider of runtimes may be unreachable."""
POLL_SECONDS = 0.25
ABORT_POLL_SECONDS = 0.05
ABORT_SECONDS = 2.0
"""How long aborted invocations may take to end, in this process or another."""
WAIT_SECONDS = 2.0
"""How long one call waits for a runtime that is starting, so that its readiness is seen at once."""
REASON_CHARACTERS_MAX = 200
"""Leaves room for the last lines that the runtime printed."""
NAMES_MAX = 5
"""How many agents or subscribers are named while a step waits for them."""


class LockResult(Struct, frozen=True):
    """The stored result of the step that acquires the agent's lock."""

    return_state: AgentState | None = field(default=None, name="was")
    """The state to which the agent returns if the operation is cancelled."""
    holds: dict[str, list[HeldResource]] = {}
    """The resources that the agent held, by slot."""


class RuntimeResult(Struct, frozen=True):
    """The stored result of the step that starts a runtime, beside the provider's own reference.

    Once the agent is READY this is also stored as the place where it is reached.
    """

    key: str = ""
    generation: int = 0
    step: str = RUNTIME_STEP
    is_kept: bool = field(default=False, name="kept")
    """Whether it is the runtime of an earlier operation, which a suspend has kept."""
    unused_key: str = field(default="", name="instead_of")
    """For a kept one: the key of the runtime that would have been made without it."""
    address: str = ""
    """Where it listens, as its provider says: `host:port`."""


class FoundRuntime(Struct, frozen=True):
    """The stored result of the step that finds a runtime that a suspend has kept."""

    runtime: PlainData | None = field(default=None, name="kept")
    """The stored result for that runtime; None: no runtime was kept."""


def plane_of(call: Call) -> PlaneApi:
    """What the control plane offers to steps of an agent's plans."""
    return cast(PlaneApi, call.plane)


def runtime_of(call: Call) -> RuntimeProvider:
    """The provider of runtimes."""
    return cast(RuntimeProvider, call.providers["runtime"])


def result_of(call: Call, step: str) -> PlainData:
    """The result of an earlier step, as it is stored."""
    return cast(PlainData, call.results[step])


def runtime_result(call: Call) -> RuntimeResult:
    """The runtime that this operation has started, or goes on with."""
    return msgspec.convert(result_of(call, RUNTIME_STEP), RuntimeResult)


def held_resources(call: Call, slot: str) -> Sequence[HeldResource]:
    """The resources that the agent held in this slot when the operation got its lock."""
    holds: dict[str, list[PlainData]] = result_of(call, LOCK_STEP).get("holds", {})
    return [msgspec.convert(one, HeldResource) for one in holds.get(slot, ())]


def key_of(call: Call, slot: str, resource: HeldResource | RuntimeResult) -> ResourceKey:
    """The key of a resource that an earlier operation made."""
    key = call.key
    return resource_key(
        key.plane,
        tenant=key.tenant,
        agent=key.agent,
        generation=resource.generation,
        slot=slot,
        name=resource.step,
        text=resource.key,
    )


def runtime_key(call: Call) -> ResourceKey:
    """The key of the runtime that this operation itself makes."""
    key = call.key
    return resource_key(
        key.plane,
        tenant=key.tenant,
        agent=key.agent,
        generation=key.generation,
        slot="runtime",
        name=RUNTIME_STEP,
    )


# --- the agent's lock -----------------------------------------------------------------------------


async def _acquire_lock(call: Call) -> Ending:
    values: VerbInput | QueuedInput = call.input
    lock = await plane_of(call).acquire_lock(
        call.key.agent,
        call.operation,
        return_state=values.return_state,
        previous_operation=values.previous_operation,
    )
    if lock.lock_holder:
        return NotYet(POLL_SECONDS, f"waits for operation {lock.lock_holder} to end")
    if lock.refusal:
        raise Rejected(f"the queued operation cannot start: {lock.refusal}")
    holds = {slot: list(resources) for slot, resources in lock.holds.items()}
    return Done(msgspec.to_builtins(LockResult(lock.return_state, holds)))


def acquire_lock(kind: StepKind = StepKind.COMPENSATABLE) -> Step:
    """Wait until no other operation has the agent's lock, and list the agent's resources."""
    undo = nothing if kind is StepKind.COMPENSATABLE else None
    limits = StepLimits(deadline_seconds=NO_DEADLINE_SECONDS)
    return Step(LOCK_STEP, _acquire_lock, undo, repeat, kind=kind, limits=limits)


# --- a runtime ------------------------------------------------------------------------------------


async def _await_ready(call: Call) -> Ending:
    """A runtime that answers is ready, even if its deadline has passed before this call."""
    values: AgentInput = call.input
    runtime, started = runtime_of(call), runtime_result(call)
    key = key_of(call, "runtime", started) if started.is_kept else runtime_key(call)
    ready_seconds = values.read_spec().runtime.ready_seconds
    left = call.since + ready_seconds - call.now
    status = await runtime.wait_ready(key, seconds=max(0.0, min(left, WAIT_SECONDS)))
    match status.presence:
        case Presence.READY:
            return Done()
        case Presence.STARTING if left > WAIT_SECONDS:
            return NotYet(POLL_SECONDS, status.message)
        case Presence.STARTING:
            why = f"the runtime is not ready after {ready_seconds:g} s"
        case _:
            why = "the runtime broke before it was ready"
    raise Rejected(_with_last_lines(why, status.message, name=values.name))


def _with_last_lines(why: str, output: str, *, name: str) -> str:
    """The reason, the command that shows the whole log, and the last lines of the log.

    `output` is the runtime's own reason and, below it, what it printed.  Only whole lines are
    shown, unless the last line alone is too long.
    """
    reason, _, printed = output.partition("\n")
    head = f"{why}: {reason}"[:REASON_CHARACTERS_MAX] if reason else why
    head = f"{head}; its output: tenure agent logs {name}"
    printed = printed.rstrip()
    last = printed[-(DETAIL_CHARACTERS_MAX - len(head) - 1) :]
    if len(last) < len(printed) and "\n" in last:
        last = last.partition("\n")[2]
    return f"{head}\n{last}" if last else head


def await_ready() -> Step:
    """Wait until the runtime answers; Rejected at its deadline, with the last lines of its log.

    The step's own deadline is for a provider that cannot be reached.
    """
    limits = StepLimits(deadline_seconds=READY_SECONDS_MAX + UNREACHABLE_SECONDS)
    return Step("runtime_ready", _await_ready, nothing, repeat, limits=limits, provider="runtime")


async def _drain(call: Call) -> Ending:
    """Wait for the work in flight.  Nothing new starts, since the agent is closed.

    After the deadline the runtime is not asked, so one that does not answer delays nothing.
    Invocations in flight are aborted then, also when the runtime is kept.  Another process aborts
    its own at its next poll; the drain does not wait for a process that does not react.
    """
    values: VerbInput = call.input
    until = call.since + values.drain_seconds
    in_flight = plane_of(call).in_flight(call.key.agent)
    busy = [f"{in_flight} invocations in flight"] if in_flight else []
    if call.now >= until:
        plane_of(call).abort_invocations(call.key.agent)
        if in_flight and call.now < until + ABORT_SECONDS:
            return NotYet(ABORT_POLL_SECONDS, f"aborts {in_flight} invocations in flight")
        return Done({"forced": True, "busy": busy})
    for resource in held_resources(call, "runtime"):
        status = await runtime_of(call).status(key_of(call, "runtime", resource))
        if status.presence is Presence.READY and status.busy:
            busy.append("the runtime says it is busy")
    if not busy:
        return Done({"forced": False})
    return NotYet(min(POLL_SECONDS, until - call.now), f"drains: {', '.join(busy)}")


def drain() -> Step:
    """Let work in flight finish until the drain deadline, then continue without it."""
    limits = StepLimits(deadline_seconds=NO_DEADLINE_SECONDS)
    return Step("drained", _drain, nothing, repeat, limits=limits, provider="runtime")


# --- closing and opening --------------------------------------------------------------------------


async def _close(call: Call) -> Ending:
    """Stop issuing tokens for the agent, and void those that were issued before.

    Providers get two epochs for each epoch n of the agent; neither is the epoch of the plane.
    Opening uses 2n and closing 2n+1, so a late opening of the same operation is older than its
    closing and changes nothing.
    """
    values: VerbInput = call.input
    key, epoch = call.key, 2 * values.epoch + 1
    credentials = cast(Credentials, call.providers["credentials"])
    identity = cast(Authorization, call.providers["identity"])
    try:
        await credentials.close_agent(key.tenant, key.agent, epoch=epoch)
        await identity.raise_epoch(key.tenant, key.agent, epoch=epoch, closed=True)
    except Rejected as error:  # an earlier call, or half of this one, may have been applied
        raise OutcomeUnknown(str(error)) from None
    return Done()


async def _reopen(call: Call) -> Ending:
    values: VerbInput = call.input
    key, epoch = call.key, 2 * values.epoch
    credentials = cast(Credentials, call.providers["credentials"])
    identity = cast(Authorization, call.providers["identity"])
    await identity.raise_epoch(key.tenant, key.agent, epoch=epoch)
    await credentials.reopen_agent(key.tenant, key.agent, epoch=epoch)
    return Done()


def close(kind: StepKind) -> Step:
    """Revoke: no token is issued for the agent, and the tokens that it has are void."""
    return Step("closed", _close, None, repeat, kind=kind, provider="credentials")


def reopen() -> Step:
    """Issue tokens for the agent again; the undo closes it again."""
    return Step("opened", _reopen, _close, repeat, provider="credentials")


# --- removing what the agent holds ----------------------------------------------------------------


def _never(_: Call) -> bool:
    return False


def remove_held(name: str, slot: str, *, skip_if: Callable[[Call], bool] = _never) -> Step:
    """Remove all resources that the agent held in a slot when the operation got its lock."""

    async def remove(call: Call) -> Ending:
        if skip_if(call):
            return Done()
        provider: Provider = call.providers[slot]
        burned: list[tuple[str, str]] = []
        for resource in held_resources(call, slot):
            await end_unless_foreign(provider, key_of(call, slot, resource), provider.remove)
            burned.append((resource.operation, resource.step))
        return Done({"removed": len(burned)}, burned=tuple(burned))

    return Step(name, remove, None, repeat, kind=StepKind.RETRIABLE, provider=slot)


# --- required subscribers -------------------------------------------------------------------------


async def _await_acknowledgements(call: Call) -> Ending:
    """Wait for a signal, without a timer; acknowledgements that came earlier count."""
    missing = await plane_of(call).list_missing_acknowledgements(call.operation)
    if not missing:
        return Done()
    names = ", ".join(f"{one.name} since {in_utc(one.since)}" for one in missing[:NAMES_MAX])
    more = f" and {len(missing) - NAMES_MAX} more" if len(missing) > NAMES_MAX else ""
    return Waiting(ACKNOWLEDGED, f"waits for the acknowledgement of {names}{more}")


def await_acknowledgements() -> Step:
    """Wait until every required subscriber has acknowledged; last, after the agent is safe."""
    limits = StepLimits(deadline_seconds=NO_DEADLINE_SECONDS)
    return Step(
        "acknowledged",
        _await_acknowledgements,
        None,
        repeat,
        kind=StepKind.RETRIABLE,
        limits=limits,
    )


# --- exposure -------------------------------------------------------------------------------------


async def _expose(_: Call) -> Ending:
    return Done()


EXPOSE = Step("exposed", _expose, None, repeat, kind=StepKind.PIVOT)
"""The commit that records this step makes the agent READY; callers cannot reach it before."""


def identity_spec(call: Call) -> Spec:
    """The spec of an agent's identity."""
    values: AgentInput = call.input
    spec = values.read_spec()
    scopes = sorted({scope for one in spec.credentials for scope in one.scopes})
    audiences = sorted({one.audience for one in spec.credentials})
    return {"name": spec.name, "owner": spec.owner, "scopes": scopes, "audiences": audiences}


def access_spec(call: Call) -> Spec:
    """The spec of an agent's access: its roles and teams, and who granted them."""
    values: AgentInput = call.input
    spec = values.read_spec()
    return {
        "roles": list(spec.roles),
        "teams": list(spec.teams),
        "granted_by": values.principal,
    }


def runtime_spec(call: Call) -> Spec:
    """The spec of an agent's runtime, with the digests of the files that it starts."""
    values: AgentInput = call.input
    return values.runtime


def credentials_spec(call: Call) -> Spec:
    """The spec of the credentials that an agent may ask for."""
    values: AgentInput = call.input
    credentials: list[dict[str, Any]] = [
        {"audience": one.audience, "scopes": list(one.scopes), "ttl_seconds": one.ttl_seconds}
        for one in values.read_spec().credentials
    ]
    return {"credentials": credentials}
