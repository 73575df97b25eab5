"""`LocalAccess`: grants are rows that belong to a row of `resource`.

A resource's grants change only together with its revision, so of two concurrent changes the second
is refused and retried.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from tenure.adapters.access.local import spec as specs
from tenure.core.errors import Invalid, Rejected, Unavailable
from tenure.core.ids import ResourceKey
from tenure.core.limits import PAGE_MAX
from tenure.core.records.table import TableShape
from tenure.ports.access import Grant, GrantKind
from tenure.ports.provider import Spec
from tenure.ports.store import Change, Drop, Is, Key, Put, Row, Set
from tenure.sqlite.resource_file import (
    ATTEMPTS_MAX,
    GuardOrWrite,
    ResourceFile,
    differences,
    revision_guard,
)

TABLES = {
    "grant": TableShape(("subject", "key", "kind", "name"), ("tenant", "granted_by", "at")),
    "revoked": TableShape(("key",), ("generation", "at")),
    "team_role": TableShape(("team", "tenant", "role"), ("at",)),
}


class LocalAccess:
    """Implements `tenure.ports.access.Access` on one file."""

    def __init__(self, resources: ResourceFile, queries: Mapping[str, str]) -> None:
        self._resources = resources
        self._queries = queries
        self.inspect = resources.inspect
        self.list_owned = resources.list_owned
        self.close = resources.close

    # -------------------------------------------------------------------------- provider methods

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Grant the names of the spec, and revoke other grants of this key."""
        try:
            desired = specs.read(spec)
        except Invalid as error:
            await self._resources.refuse(key, str(error))
        return await self._resources.ensure(
            key,
            spec,
            reference=lambda: {"subject": key.agent},
            extra_changes=partial(self._converge, key, desired),
        )

    async def remove(self, key: ResourceKey) -> None:
        """Revoke the grants of this key, and burn it."""
        await self._resources.remove(key, extra_changes=lambda _: self._clear(key))

    def _converge(
        self, key: ResourceKey, desired: specs.DesiredGrants, _: Row | None
    ) -> Sequence[GuardOrWrite]:
        """The writes from the current grants to the desired ones, unless they were revoked."""
        mark = self._resources.find("revoked", (key.text,))
        if mark is not None and mark["generation"] >= key.generation:  # type: ignore[operator]
            return []
        current = self._current(key)
        at = self._resources.now()
        rows: dict[Key, Row] = {
            (key.agent, key.text, kind, name): {
                "tenant": key.tenant,
                "granted_by": desired.granted_by,
                "at": at,
            }
            for kind, name in desired.names
        }
        return differences("grant", current, rows)

    def _clear(self, key: ResourceKey) -> list[GuardOrWrite]:
        return [Drop("revoked", (key.text,)), *differences("grant", self._current(key), {})]

    def _current(self, key: ResourceKey) -> dict[Key, Row]:
        parameters = {"subject": key.agent, "key": key.text, "tenant": key.tenant}
        return {
            (key.agent, key.text, kind, name): {"tenant": key.tenant, "granted_by": granted_by}
            for kind, name, granted_by in self._resources.read(
                self._queries["grants_of_key"], parameters
            )
        }

    # ------------------------------------------------------------------------------------ queries

    async def check(self, tenant: str, subject: str, *, role: str) -> bool:
        """Read the role by the index on the agent."""
        parameters = {"tenant": tenant, "subject": subject, "role": role}
        return bool(self._resources.read(self._queries["check_role"], parameters))

    async def list_by_subject(
        self, tenant: str, subject: str, *, after: Grant | None = None, limit: int = PAGE_MAX
    ) -> Sequence[Grant]:
        """Read one page in the order of the table's key."""
        parameters: Row = {"tenant": tenant, "subject": subject}
        return self._page("list_by_subject", parameters, after, limit)

    async def list_by_granter(
        self, tenant: str, granter: str, *, after: Grant | None = None, limit: int = PAGE_MAX
    ) -> Sequence[Grant]:
        """Read one page by the index of granters."""
        parameters: Row = {"tenant": tenant, "granter": granter}
        return self._page("list_by_granter", parameters, after, limit)

    def _page(self, query: str, parameters: Row, after: Grant | None, limit: int) -> list[Grant]:
        last = ("", "", "", "") if after is None else after[:4]
        names = ("after_subject", "after_key", "after_kind", "after_name")
        parameters |= dict(zip(names, last, strict=True))
        parameters["limit"] = max(0, min(limit, PAGE_MAX))
        rows = self._resources.read(self._queries[query], parameters)
        return [
            Grant(subject, key, GrantKind(kind), name, granted_by, at)
            for subject, key, kind, name, granted_by, at in rows
        ]

    # ------------------------------------------------------------------------------------ changes

    async def revoke_subject(self, tenant: str, subject: str) -> int:
        """Drop the rows in one change, and record the generations whose grants stay revoked."""
        return await self._revoke("grants_of_subject", {"tenant": tenant, "subject": subject})

    async def revoke_granter(self, tenant: str, granter: str) -> int:
        """Revoke all grants of one granter in the same way."""
        return await self._revoke("grants_of_granter", {"tenant": tenant, "granter": granter})

    async def _revoke(self, query: str, parameters: Row) -> int:
        for _ in range(ATTEMPTS_MAX):
            rows = self._resources.read(self._queries[query], parameters)
            if not rows:
                return 0
            guards: list[Is] = []
            writes: list[Put | Set | Drop] = [
                Drop("grant", (subject, key, kind, name)) for subject, key, kind, name, *_ in rows
            ]
            for key, (revision, generation) in {key: rest for _, key, _, _, *rest in rows}.items():
                guard, revise = revision_guard({"key": key, "revision": revision})
                guards.append(guard)
                writes += [revise, self._note(key, generation)]
            if await self._resources.commit(Change("", tuple(guards), tuple(writes))) is None:
                return len(rows)
        raise Unavailable("Too many concurrent changes of these grants: nothing was revoked.")

    def _note(self, key: str, generation: int) -> Put | Set:
        """Record that grants of the resource up to this generation stay revoked."""
        note: Row = {"generation": generation, "at": self._resources.now()}
        exists = self._resources.find("revoked", (key,)) is not None
        return Set("revoked", (key,), note) if exists else Put("revoked", (key,), note)

    async def grant_team_role(self, tenant: str, team: str, *, role: str) -> None:
        """Insert the row, unless it exists."""
        row: Row = {"at": self._resources.now()}
        put = Put("team_role", self._team_role(tenant, team, role), row)
        await self._resources.commit(Change("", (), (put,)))

    async def revoke_team_role(self, tenant: str, team: str, *, role: str) -> None:
        """Drop the row."""
        drop = Drop("team_role", self._team_role(tenant, team, role))
        await self._resources.commit(Change("", (), (drop,)))

    async def list_team_roles(self, tenant: str, team: str) -> Sequence[str]:
        """Read all roles of the team; an operator has named each, so there are few."""
        parameters = {"tenant": tenant, "team": team}
        return [
            role for (role,) in self._resources.read(self._queries["list_team_roles"], parameters)
        ]

    def _team_role(self, tenant: str, team: str, role: str) -> tuple[str, str, str]:
        try:
            return specs.name(team, "team"), tenant, specs.name(role, "role")
        except Invalid as error:
            raise Rejected(str(error)) from None
