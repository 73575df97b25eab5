"""The step that most plans are made of: one resource at a provider."""

from collections.abc import Awaitable, Callable

from tenure.core.endings import Absent, Done, Ending
from tenure.core.errors import Rejected
from tenure.core.ids import ResourceKey
from tenure.core.limits import StepLimits
from tenure.core.plan import Step, StepKind
from tenure.ports.provider import Call, Presence, Provider, Spec


async def end_unless_foreign(
    provider: Provider, key: ResourceKey, end: Callable[[ResourceKey], Awaitable[None]]
) -> None:
    """End the resource under this key; a refusal is ignored if the resource is not ours."""
    try:
        await end(key)
    except Rejected:
        if (await provider.inspect(key)).presence is not Presence.FOREIGN:
            raise


def provided(
    name: str,
    provider: str,
    *,
    spec: Callable[[Call], Spec] | None = None,
    kind: StepKind = StepKind.COMPENSATABLE,
    needs: tuple[str, ...] = (),
    limits: StepLimits | None = None,
) -> Step:
    """A step for one resource: do ensures it, inspect finds it by key, undo removes it."""

    async def ensure(call: Call) -> Ending:
        resource_spec = spec(call) if spec else call.input
        return Done(dict(await call.providers[provider].ensure(call.key, resource_spec)))

    async def inspect(call: Call) -> Ending:
        observed = await call.providers[provider].inspect(call.key)
        match observed.presence:
            case Presence.READY | Presence.STARTING:
                return Done(dict(observed.reference))
            case _:
                return Absent()  # ensure replaces a broken resource, and refuses a foreign one

    async def remove(call: Call) -> Ending:
        service = call.providers[provider]
        await end_unless_foreign(service, call.key, service.remove)
        return Done()

    undo = remove if kind is StepKind.COMPENSATABLE else None
    limits = limits or StepLimits()
    return Step(
        name,
        ensure,
        undo,
        inspect,
        kind=kind,
        slot=provider,
        needs=needs,
        limits=limits,
        provider=provider,
    )
