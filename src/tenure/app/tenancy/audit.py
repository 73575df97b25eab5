"""The audit log: one line for each change by a caller, chained by hashes.

A line is written in the same commit as its change; the store adds the hash.  `verify` checks the
whole chain.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tenure.app.operations.handle import decode, encode
from tenure.app.pages import page_of
from tenure.app.plane import Plane
from tenure.core.audit import BrokenChain, first_broken
from tenure.core.records import AuditRecord
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import ChainHash, Next, Put

VERIFY_ROWS = 1_000
"""Lines that are read at a time while the chain is verified."""


class AuditLine(NamedTuple):
    """One line as callers see it."""

    position: int
    principal: str
    action: str
    target: str
    at: float
    body: Any
    hash: str


class ChainVerdict(NamedTuple):
    """The result of a verification: the number of intact lines, their last hash, the first bad."""

    entries: int
    head: str
    broken: BrokenChain | None


def audit_line(caller: Caller, action: str, *, target: str, now: float, **body: object) -> Put:
    """The line about a change, to be committed with it."""
    return Put(
        "audit",
        (Next("audit"),),
        {
            "tenant": caller.tenant,
            "principal": caller.principal,
            "action": action,
            "target": target,
            "at": now,
            "body": encode(body),
            "hash": ChainHash("audit"),
        },
    )


async def list_audit(
    plane: Plane, caller: Caller, *, after: int = 0, limit: int = 100
) -> Sequence[AuditLine]:
    """Lines of the caller's tenant in order."""
    require(caller, Role.ADMIN)
    rows = await plane.store.list_rows(
        AuditRecord, {"tenant": caller.tenant}, after=(after,), limit=page_of(limit)
    )
    return [
        AuditLine(
            row.position,
            str(row.principal),
            row.action,
            row.target,
            row.at,
            decode(row.body),
            row.hash,
        )
        for row in rows
    ]


async def verify(plane: Plane, *, head: str = "") -> ChainVerdict:
    """Verify the whole chain, and that it still contains the heads that are known.

    A truncation is detected only by a known head: `head`, which a caller has exported before, and
    the last head that this process has seen.
    """
    position, previous = 0, ""
    missing = {head, plane.pause.memo.head} - {""}
    while rows := await plane.store.list_rows(
        AuditRecord, {}, after=(position,), limit=VERIFY_ROWS
    ):
        values = [list(row) for row in rows]
        broken = first_broken(values, previous=previous, position=position)
        if broken is not None:
            good = rows[: broken.position - 1 - position]
            last = good[-1].hash if good else previous
            return ChainVerdict(position + len(good), last, broken)
        missing -= {row.hash for row in rows}
        position, previous = position + len(rows), rows[-1].hash
    if not missing:
        return ChainVerdict(position, previous, None)
    which = "that you exported" if head in missing else "that this plane saw last"
    why = f"the head {which} is missing in the log"
    return ChainVerdict(position, previous, BrokenChain(position + 1, why, head_missing=True))
