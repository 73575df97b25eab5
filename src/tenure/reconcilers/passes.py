"""One pass of one reconciler, under the fence token of the leader.

A row of `lease` names the leader.  Each new leader raises the token there, and every commit that
decides a deletion is guarded by the token.  So a former leader that was suspended deletes nothing.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from tenure.app.leader import lease_of
from tenure.app.plane import Plane
from tenure.app.safety import findings
from tenure.app.safety.findings import Sighting
from tenure.app.tenancy.tokens import PLANE_TENANT
from tenure.core.finding import FindingKind
from tenure.core.records import FindingRecord
from tenure.ports import lease_rows
from tenure.ports.store import Is, Writes

LEADERS: Final = "reconcilers"
"""The name of the lease that the leader holds: see `tenure.app.leader`."""


class RetentionPeriods(NamedTuple):
    """For how many seconds finished rows are kept; 0 means for ever."""

    findings: float = 30 * 86_400.0
    operations: float = 90 * 86_400.0


DEFAULT_RETENTION: Final = RetentionPeriods()


class Tick(NamedTuple):
    """The result of one pass; `retry_at` asks for the next pass before its regular time."""

    seen: int = 0
    fixed: int = 0
    retry_at: float | None = None


class FindingAbout(NamedTuple):
    """The tenant, agent and resource of a finding; empty where they are unknown."""

    tenant: str = ""
    agent: str = ""
    resource: str = ""


ABOUT_PLANE: Final = FindingAbout()


class Pass:
    """One pass of one reconciler: its fence token, and whether it may change anything."""

    def __init__(
        self,
        plane: Plane,
        reconciler: str,
        *,
        token: int = 0,
        read_only: bool = False,
        dry_run: bool = False,
        repairs: bool = True,
        retention: RetentionPeriods = DEFAULT_RETENTION,
    ) -> None:
        """`read_only` writes findings and changes nothing else; a dry run writes nothing.

        A pass on a plane that is paused after a restore is always `read_only`.

        A token of 0 stands for a process that is alone and holds no lease.
        """
        self._plane = plane
        self.reconciler = reconciler
        self.read_only = read_only or dry_run or bool(plane.pause.why)
        self.dry_run = dry_run
        self.repairs = repairs and not self.read_only
        """Whether differences are repaired if the agent's spec does not say otherwise."""
        self.retention = retention
        self.token = token
        self._reported_ids: set[str] = set()
        """The ids of findings that this pass has reported."""
        self.sightings: list[Sighting] = []
        """The sightings of this pass, each once; also those that a dry run does not write."""

    def fence(self) -> tuple[Is, ...]:
        """The guard of every commit that intends a deletion: no other process leads."""
        if not self.token:
            return ()
        return (lease_rows.lease_has_token(lease_of(LEADERS)[0], self.token),)

    async def report(
        self,
        kind: FindingKind,
        finding_key: str,
        what: str,
        *,
        about: FindingAbout,
        details: Mapping[str, object] | None = None,
        guards: tuple[Is, ...] = (),
        writes: Writes = (),
    ) -> FindingRecord | None:
        """Write a sighting; return the finding after it, or None if a guard refused.

        `finding_key` tells the findings of this reconciler apart: the same key, the same finding.
        A finding without a known tenant belongs to the plane's own tenant.
        """
        tenant, agent, resource = about
        body = {"what": what, **(details or {})}
        sighting = Sighting(
            self.reconciler, kind, finding_key, tenant or PLANE_TENANT, agent, resource, body
        )
        if self.dry_run:
            self.sightings.append(sighting)
            return None
        row = await findings.report(self._plane, sighting, guards=guards, writes=writes)
        if row is not None:
            if row.id not in self._reported_ids:
                self.sightings.append(sighting)
            self._reported_ids.add(row.id)
        return row

    async def resolve_unseen(self) -> None:
        """After a complete pass: resolve the findings of this reconciler that it has not seen."""
        for row in await findings.list_open(self._plane, self.reconciler):
            await self.resolve(row)

    async def resolve(self, row: FindingRecord) -> None:
        """Resolve a finding, unless this pass has seen it again."""
        if not self.dry_run and row.id not in self._reported_ids:
            await findings.resolve(self._plane, row, by=f"reconciler {self.reconciler}")
