"""Tombstones: burned keys that are still inspected for a minute, in case a late call arrives.

A compensated create and a delete write them; the reconciler `late_arrivals` inspects the keys and
removes a resource that has appeared under one.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from tenure.core.limits import LATE_SECONDS
from tenure.core.records.operation import TombstoneRecord
from tenure.core.records.table import key_of
from tenure.ports.store import Change, Drop, Is, Key, Put, Set

ABSENCES_COLUMN = "sightings"
"""The column of `TombstoneRecord.absences`."""


def tombstones(burned: Iterable[tuple[str, str]], now: float) -> list[Put]:
    """One tombstone for each step, given as (operation, step), whose key was burned just now."""
    until = now + LATE_SECONDS
    return [
        Put.of(TombstoneRecord(operation, step, until, absences=0)) for operation, step in burned
    ]


def count_absences(stone: TombstoneRecord, absences: int) -> Set:
    """Write how many inspections in a row have found nothing under the key."""
    return Set("tombstone", key_of(stone), {ABSENCES_COLUMN: absences})


def drop_tombstone(stone: TombstoneRecord) -> Drop:
    """The key is not inspected any more."""
    return Drop("tombstone", key_of(stone))


def tombstone_is_unchanged(stone: TombstoneRecord) -> Is:
    """Guard: nobody else has inspected the key since the tombstone was read."""
    return Is("tombstone", key_of(stone), {ABSENCES_COLUMN: stone.absences})


def _renew(put: Put) -> Set:
    """Inspect the key for another minute, and count its absences from 0 again."""
    columns = {"until": put.row["until"], ABSENCES_COLUMN: 0}
    return Set("tombstone", put.key, columns)  # type: ignore[arg-type]


def renew_tombstones(change: Change, existing_tombstones: AbstractSet[Key]) -> Change:
    """The same change, with an update instead of an insert for tombstones that exist already."""
    if not existing_tombstones:
        return change
    writes = tuple(
        _renew(write)
        if type(write) is Put and write.table == "tombstone" and write.key in existing_tombstones
        else write
        for write in change.writes
    )
    return replace(change, writes=writes)
