"""A term: one reconciler's right to look and to act, for as long as its fence token stands.

Who leads is a row of `lease`.  Whoever takes it raises the token, and every commit that records the
intent of a deletion guards it: one who was deposed while it slept deletes nothing.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.app.safety.findings import Sighting
from tenure.app.tenancy.tokens import TENANT
from tenure.core.finding import FindingKind
from tenure.core.records import FindingRecord
from tenure.ports.store import Is, Writes
from tenure.reconcilers.leader import lease_of

LEADERS: Final = "reconcilers"
"""Whose lead it is: see `tenure.reconcilers.leader`."""


class KeptFor(NamedTuple):
    """For how many seconds what is over is kept; 0: for ever."""

    findings: float = 30 * 86_400.0
    operations: float = 90 * 86_400.0


KEPT_FOR: Final = KeptFor()


class Tick(NamedTuple):
    """What one look came to; `retry_at` is when to look again, if that is before the next turn."""

    seen: int = 0
    fixed: int = 0
    retry_at: float | None = None


class FindingSubject(NamedTuple):
    """Whom and what a finding is about, as far as anybody knows."""

    tenant: str = ""
    agent: str = ""
    resource: str = ""


NOBODY: Final = FindingSubject()


class Term:
    """One look of one reconciler: under which token, and whether it may do anything."""

    def __init__(
        self,
        plane: Plane,
        reconciler: str,
        *,
        token: int = 0,
        read_only: bool = False,
        dry_run: bool = False,
        repairs: bool = True,
        kept: KeptFor = KEPT_FOR,
    ) -> None:
        """`read_only` reports and changes nothing else; a dry run does not even report.

        A plane that is held after a restore is looked at so as well.

        A token of 0 stands for a process that is alone and holds no lease.
        """
        self._plane = plane
        self.reconciler = reconciler
        self.read_only = read_only or dry_run or bool(plane.pause.why)
        self.dry_run = dry_run
        self.repairs = repairs and not self.read_only
        """Whether what differs is put right where an agent does not say otherwise."""
        self.kept = kept
        self.token = token
        self._seen: set[str] = set()
        """Findings that this look has reported."""
        self.told: list[Sighting] = []
        """What it has reported, each once; of a dry run what it would have."""

    def fence(self) -> tuple[Is, ...]:
        """What must still hold when a deletion is intended: nobody has taken the lead since."""
        if not self.token:
            return ()
        return (Is("lease", lease_of(LEADERS), {"token": self.token}),)

    async def report(
        self,
        kind: FindingKind,
        subject: str,
        what: str,
        *,
        about: FindingSubject,
        said: Mapping[str, object] | None = None,
        guards: tuple[Is, ...] = (),
        writes: Writes = (),
    ) -> FindingRecord | None:
        """Keep that this was seen now; the finding as it stands then, None if a guard refused.

        What belongs to nobody that we know is told to the plane's own tenant.
        """
        tenant, agent, resource = about
        told = {"what": what, **(said or {})}
        seen = Sighting(self.reconciler, kind, subject, tenant or TENANT, agent, resource, told)
        if self.dry_run:
            self.told.append(seen)
            return None
        row = await findings.report(self._plane, seen, guards=guards, writes=writes)
        if row is not None:
            if row.id not in self._seen:
                self.told.append(seen)
            self._seen.add(row.id)
        return row

    async def settle_unseen(self) -> None:
        """Resolve this reconciler's findings that this look, which was whole, has not seen."""
        for row in await findings.list_open(self._plane, self.reconciler):
            await self.settle(row)

    async def settle(self, row: FindingRecord) -> None:
        """Resolve a finding, unless this look has seen it again."""
        if not self.dry_run and row.id not in self._seen:
            await findings.settle(self._plane, row, by=f"reconciler {self.reconciler}")
