"""Tombstones: keys that were burned and are inspected for a while, in case a call arrives late."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from tenure.core.limits import LATE_SECONDS
from tenure.core.records import TombstoneRecord, key_of
from tenure.ports.store import Change, Drop, Is, Key, Put, Set


def tombstones(burned: Iterable[tuple[str, str]], now: float) -> list[Put]:
    """One tombstone for each step, given as (operation, step), whose key was burned just now."""
    until = now + LATE_SECONDS
    return [
        Put.of(TombstoneRecord(operation, step, until, sightings=0)) for operation, step in burned
    ]


def count_sightings(stone: TombstoneRecord, sightings: int) -> Set:
    """So many inspections in a row have found nothing under the key."""
    return Set("tombstone", key_of(stone), {"sightings": sightings})


def drop_tombstone(stone: TombstoneRecord) -> Drop:
    """The key is not inspected any more."""
    return Drop("tombstone", key_of(stone))


def tombstone_is_unchanged(stone: TombstoneRecord) -> Is:
    """Guard: nobody else has inspected the key since the tombstone was read."""
    return Is("tombstone", key_of(stone), {"sightings": stone.sightings})


def renew_tombstones(change: Change, existing_tombstones: AbstractSet[Key]) -> Change:
    """The same change; for tombstones in `standing`, which exist already, the time begins anew."""
    if not existing_tombstones:
        return change
    writes = tuple(
        Set(write.table, write.key, write.row)  # type: ignore[arg-type]
        if type(write) is Put and write.table == "tombstone" and write.key in existing_tombstones
        else write
        for write in change.writes
    )
    return replace(change, writes=writes)
