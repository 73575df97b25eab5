"""Tombstones: keys that were burned and are inspected for a while, in case a call arrives late."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from tenure.core.limits import LATE_SECONDS
from tenure.ports.store import Change, Key, Put, Row, Set


def tombstones(burned: Iterable[tuple[str, str]], now: float) -> list[Put]:
    """One tombstone for each step, given as (operation, step), whose key was burned just now."""
    row: Row = {"until": now + LATE_SECONDS, "sightings": 0}
    return [Put("tombstone", step, row) for step in burned]


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
