"""Nothing that arrives after its key was burned stays.

A call that was sent before its operation was undone can be applied after it, at a provider that
burns no keys.  So every burned key is looked at until it was absent twice and the window in which
something can still arrive is over; what is found is removed by its key.
"""

import logging
from collections.abc import AsyncIterator

from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.core.errors import ProviderError
from tenure.core.finding import FindingKind
from tenure.core.ids import ResourceKey, resource_key
from tenure.core.records import IntentRecord, OperationRecord, TombstoneRecord
from tenure.ports.provider import Presence, Provider
from tenure.ports.store import Change, Drop, Is, Set
from tenure.reconcilers.circuit_breaker import Silence
from tenure.reconcilers.term import FindingSubject, Term, Tick

log = logging.getLogger("tenure.reconcilers")
SENTENCE = "Nothing that arrives after its key was burned stays."
NAME = "late"
SIGHTINGS = 2
"""How often it must have been absent."""


async def tick(plane: Plane, *, limit: int = 0, term: Term | None = None) -> Tick:
    """Look once at every tombstone; a provider or a key that fails or hangs holds up no other.

    They are no more than what was removed within a minute, so `limit` means nothing here.
    """
    del limit
    term = term or Term(plane, NAME)
    seen = fixed = 0
    whole = True
    silence = Silence(plane, NAME)
    async for stone in _stones(plane, silence):
        seen += 1
        late = await _look(plane, term, stone, silence)
        whole = whole and late is not None
        fixed += late or 0
    if whole:
        await term.settle_unseen()
    return Tick(seen, fixed)


async def _stones(plane: Plane, silence: Silence) -> AsyncIterator[TombstoneRecord]:
    """Every tombstone, those last whose keys hung."""
    put_off: list[TombstoneRecord] = []
    async for stone in every(plane.store, TombstoneRecord, {}):
        if silence.turn(_name(stone)):
            put_off.append(stone)
        else:
            yield stone
    for stone in sorted(put_off, key=lambda one: silence.turn(_name(one))):
        yield stone


def _name(stone: TombstoneRecord) -> str:
    return f"{stone.operation!s} {stone.step!s}"


async def _look(plane: Plane, term: Term, stone: TombstoneRecord, silence: Silence) -> int | None:
    """How many late arrivals were removed under this key: none or one; None: nobody can tell."""
    where = (str(stone.operation), stone.step)
    key = await _key(plane, where)
    provider = None if key is None else plane.providers.get(key.slot)
    if key is None or provider is None:
        if not term.read_only:
            await plane.store.commit(Change("", (), (Drop("tombstone", where),)))
        return 0
    if silence.passes_over(key.slot, _name(stone)):
        return None
    try:
        async with silence.asking(key.slot, _name(stone)):
            return await _ask(plane, term, stone, key, provider)
    except TimeoutError:
        log.warning("provider %s says nothing of %s; it is asked again later", key.slot, key.text)
    except ProviderError as error:
        log.info("step %s of operation %s: %r", stone.step, stone.operation, error)
    return None


async def _ask(
    plane: Plane, term: Term, stone: TombstoneRecord, key: ResourceKey, provider: Provider
) -> int:
    where = (str(stone.operation), stone.step)
    presence = (await provider.inspect(key)).presence
    late = presence not in {Presence.ABSENT, Presence.FOREIGN}
    passed = stone.until <= plane.store.now()
    if late:
        log.warning("%s turned up after it was removed; it is removed again", key.text)
        await _report(term, key, lies=passed)
    if term.read_only:
        return 0
    if late:
        await provider.remove(key)
    sightings = 0 if late else stone.sightings + 1
    over = passed and sightings >= SIGHTINGS
    write = Drop("tombstone", where) if over else Set("tombstone", where, {"sightings": sightings})
    guard = Is("tombstone", where, {"sightings": stone.sightings})
    await plane.store.commit(Change("", (guard,), (write,)))
    return int(late)


async def _report(term: Term, key: ResourceKey, *, lies: bool) -> None:
    """One arrival within the window is nothing special; after it the provider does not remove."""
    kind = FindingKind.DRIFT if lies else FindingKind.CONFIRMED
    what = f"{key.slot} {key.text} turned up after it was removed; it is removed again"
    if lies:
        what = f"provider {key.slot} says that {key.text} was removed, and it is still there"
    await term.report(
        kind, key.text, what, about=FindingSubject(key.tenant, key.agent, key.text),
        said={"provider": key.slot},
    )  # fmt: skip


async def _key(plane: Plane, where: tuple[str, str]) -> ResourceKey | None:
    """The burned key, by the intent that named it."""
    operation = await plane.store.find(OperationRecord, (where[0],))
    intent = await plane.store.find(IntentRecord, where)
    if operation is None or intent is None:
        return None
    return resource_key(
        plane.id, tenant=operation.tenant, agent=operation.agent,
        generation=operation.generation, slot=intent.slot, name=where[1],
        text=intent.key,
    )  # fmt: skip
