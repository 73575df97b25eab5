"""Removes resources that appear after their key was burned.

If a provider does not burn keys, a call that was sent before its operation was undone can be
applied after the undo.  So every burned key has a tombstone and is inspected until it was absent
twice and the time in which a late call can arrive is over.  A resource that is found is removed by
its key.
"""

import logging
from collections.abc import AsyncIterator

from tenure.app.operations import tombstones
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.errors import ProviderError
from tenure.core.finding import FindingKind
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.records import IntentRecord, OperationRecord, TombstoneRecord
from tenure.ports.provider import Presence, Provider
from tenure.ports.store import Change
from tenure.reconcilers.circuit_breaker import ProviderBreaker
from tenure.reconcilers.passes import FindingAbout, Pass, Tick

log = logging.getLogger("tenure.reconcilers")
SENTENCE = "Nothing that arrives after its key was burned stays."
NAME = "late"
ABSENCES_MIN = 2
"""How many inspections in a row must find the key absent."""


async def tick(plane: Plane, *, limit: int = 0, this_pass: Pass | None = None) -> Tick:
    """Check every tombstone once; a provider or key that fails or hangs delays no other.

    `limit` is not used: there are only tombstones of keys that were burned in the last minutes.
    """
    del limit
    this_pass = this_pass or Pass(plane, NAME)
    seen = fixed = 0
    is_complete = True
    breaker = ProviderBreaker(plane, NAME)
    async for stone in _list_tombstones(plane, breaker):
        seen += 1
        late = await _check(plane, this_pass, stone, breaker)
        is_complete = is_complete and late is not None
        fixed += late or 0
    if is_complete:
        await this_pass.resolve_unseen()
    return Tick(seen, fixed)


async def _list_tombstones(
    plane: Plane, breaker: ProviderBreaker
) -> AsyncIterator[TombstoneRecord]:
    """Every tombstone; those whose inspection timed out in the last pass come last."""
    deferred: list[TombstoneRecord] = []
    async for stone in every(plane.store, TombstoneRecord, {}):
        if breaker.order_of(_name(stone)):
            deferred.append(stone)
        else:
            yield stone
    for stone in sorted(deferred, key=lambda one: breaker.order_of(_name(one))):
        yield stone


def _name(stone: TombstoneRecord) -> str:
    return f"{stone.operation} {stone.step}"


async def _check(
    plane: Plane, this_pass: Pass, stone: TombstoneRecord, breaker: ProviderBreaker
) -> int | None:
    """How many late arrivals were removed under this key, 0 or 1; None if that is unknown."""
    where = (stone.operation, stone.step)
    key = await _key(plane, where)
    provider = None if key is None else plane.providers.get(key.slot)
    if key is None or provider is None:
        if not this_pass.read_only:
            await plane.store.commit(Change("", (), (tombstones.drop_tombstone(stone),)))
        return 0
    if breaker.skips(key.slot, _name(stone)):
        return None
    try:
        async with breaker.call(key.slot, _name(stone)):
            return await _inspect(plane, this_pass, stone, key, provider)
    except TimeoutError:
        log.warning(
            "provider %s did not answer about %s; it is inspected again later", key.slot, key.text
        )
    except ProviderError as error:
        log.info("step %s of operation %s: %r", stone.step, stone.operation, error)
    return None


async def _inspect(
    plane: Plane, this_pass: Pass, stone: TombstoneRecord, key: ResourceKey, provider: Provider
) -> int:
    presence = (await provider.inspect(key)).presence
    late = presence not in {Presence.ABSENT, Presence.FOREIGN}
    is_window_over = stone.until <= plane.store.now()
    if late:
        log.warning("resource %s exists after it was removed; removing it again", key.text)
        await _report(this_pass, key, after_window=is_window_over)
    if this_pass.read_only:
        return 0
    if late:
        await provider.remove(key)
    absences = 0 if late else stone.absences + 1
    is_done = is_window_over and absences >= ABSENCES_MIN
    write = (
        tombstones.drop_tombstone(stone) if is_done else tombstones.count_absences(stone, absences)
    )
    guard = tombstones.tombstone_is_unchanged(stone)
    await plane.store.commit(Change("", (guard,), (write,)))
    return int(late)


async def _report(this_pass: Pass, key: ResourceKey, *, after_window: bool) -> None:
    """Report a late arrival; one after the window means that the provider does not remove it."""
    kind = FindingKind.DRIFT if after_window else FindingKind.CONFIRMED
    what = f"{key.slot} {key.text} exists after it was removed; it is removed again"
    if after_window:
        what = f"provider {key.slot} reports that {key.text} was removed, and it still exists"
    await this_pass.report(
        kind, key.text, what, about=FindingAbout(key.tenant, key.agent, key.text),
        details={"provider": key.slot},
    )  # fmt: skip


async def _key(plane: Plane, where: tuple[str, str]) -> ResourceKey | None:
    """The burned key, read from the intent of its step."""
    operation = await plane.store.find(OperationRecord, (where[0],))
    intent = await plane.store.find(IntentRecord, where)
    if operation is None or intent is None:
        return None
    return resource_key(
        plane.id, tenant=operation.tenant, agent=operation.agent,
        generation=operation.generation, slot=intent.slot, name=where[1],
        text=intent.key,
    )  # fmt: skip
