"""The audit log: who asked for what, as a chain in which every row vouches for all before it.

A row's hash covers its own values and the hash of the row before it, so an edit, a removal, a
reordering or a cut in the middle is found by walking the chain (`first_broken`).  A cut at the end
is found only against a head that was written down elsewhere.
"""

import json
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple


class BrokenChain(NamedTuple):
    """The first row that does not follow from the one before it, and why."""

    position: int
    why: str
    head_missing: bool = False
    """Every row follows from the one before it, and a head that must be there is none of theirs."""


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
