"""The audit log: who requested what, in rows that are chained by hashes.

The hash of a row covers its values and the hash of the row before it.  So `first_broken` finds a
row that was changed, removed, inserted or moved.  Rows that are missing at the end are found only
if the hash of the last row was stored elsewhere.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple


class BrokenChain(NamedTuple):
    """The first row that does not match the one before it, and why."""

    position: int
    why: str
    head_missing: bool = False
    """The chain itself is intact, but a hash that must occur in it does not."""


def link(previous: str, values: Sequence[object]) -> str:
    """The hash of a row with these values that comes after the row with hash `previous`."""
    row = json.dumps([previous, *values], ensure_ascii=True, separators=(",", ":"))
    return sha256(row.encode()).hexdigest()


def first_broken(
    rows: Iterable[Sequence[object]], *, previous: str = "", position: int = 0
) -> BrokenChain | None:
    """Walk rows (position first, hash last) that follow on from `previous` at `position`."""
    for row in rows:
        number, *_ = row
        if number != position + 1:
            return BrokenChain(
                position + 1, f"entry {position + 1} is missing; {number} stands there"
            )
        if row[-1] != link(previous, row[:-1]):
            return BrokenChain(
                position + 1, f"entry {number} was changed, or the one before it was"
            )
        previous, position = str(row[-1]), position + 1
    return None
