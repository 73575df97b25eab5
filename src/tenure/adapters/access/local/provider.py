"""`LocalAccess`: grants are rows beside the resource they are part of.

A resource's grants change only together with its revision, so of two who change them at the same
time the second reads again.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from tenure.adapters.access.local import spec as specs
from tenure.core.errors import Invalid, Rejected, Unavailable
from tenure.core.ids import ResourceKey
from tenure.core.limits import PAGE_MAX
from tenure.ports.access import Grant, GrantKind
from tenure.ports.provider import Spec
from tenure.ports.store import Change, Drop, Is, Key, Put, Row, Set, Shape
from tenure.sqlite.holdings import ATTEMPTS_MAX, Holdings, Part, differences, revision_guard

TABLES = {
    "grant": Shape(("subject", "key", "kind", "name"), ("tenant", "granted_by", "at")),
    "revoked": Shape(("key",), ("generation", "at")),
    "team_role": Shape(("team", "tenant", "role"), ("at",)),
}


class LocalAccess:
    """Keeps the promises of `tenure.ports.access.Access` on one file."""

    def __init__(self, holdings: Holdings, queries: Mapping[str, str]) -> None:
        self._holdings = holdings
        self._queries = queries
        self.inspect = holdings.inspect
        self.list_owned = holdings.list_owned
        self.close = holdings.close

    # ------------------------------------------------------------------------------------ verbs

    async def ensure(self, key: ResourceKey, spec: Spec) -> Mapping[str, object]:
        """Grant what the spec says, and take away what else this key had granted."""
        try:
            wanted = specs.read(spec)
        except Invalid as error:
            await self._holdings.refuse(key, str(error))
        return await self._holdings.ensure(
            key,
            spec,
            reference=lambda: {"subject": key.agent},
            extra_parts=partial(self._converge, key, wanted),
        )

    async def remove(self, key: ResourceKey) -> None:
        """Take away what this key had granted, and burn it."""
        await self._holdings.remove(key, extra_parts=lambda _: self._clear(key))

    def _converge(
        self, key: ResourceKey, wanted: specs.DesiredGrants, _: Row | None
    ) -> Sequence[Part]:
        """The grants from what is there, whether their resource is or not, to what is wanted."""
        mark = self._holdings.find("revoked", (key.text,))
        if mark is not None and mark["generation"] >= key.generation:  # type: ignore[operator]
            return []
        there = self._there(key)
        at = self._holdings.now()
        rows: dict[Key, Row] = {
            (key.agent, key.text, kind, name): {
                "tenant": key.tenant,
                "granted_by": wanted.granted_by,
                "at": at,
            }
            for kind, name in wanted.names
        }
        return differences("grant", there, rows)

    def _clear(self, key: ResourceKey) -> list[Part]:
        return [Drop("revoked", (key.text,)), *differences("grant", self._there(key), {})]

    def _there(self, key: ResourceKey) -> dict[Key, Row]:
        asked = {"subject": key.agent, "key": key.text, "tenant": key.tenant}
        return {
            (key.agent, key.text, kind, name): {"tenant": key.tenant, "granted_by": granted_by}
            for kind, name, granted_by in self._holdings.read(self._queries["grants_of_key"], asked)
        }

    # ---------------------------------------------------------------------------------- questions

    async def check(self, tenant: str, subject: str, *, role: str) -> bool:
        """One look, by the subject."""
        asked = {"tenant": tenant, "subject": subject, "role": role}
        return bool(self._holdings.read(self._queries["check_role"], asked))

    async def list_by_subject(
        self, tenant: str, subject: str, *, after: Grant | None = None, limit: int = PAGE_MAX
    ) -> Sequence[Grant]:
        """Read one page in the table's own order."""
        asked: Row = {"tenant": tenant, "subject": subject}
        return self._page("list_by_subject", asked, after, limit)

    async def list_by_granter(
        self, tenant: str, granter: str, *, after: Grant | None = None, limit: int = PAGE_MAX
    ) -> Sequence[Grant]:
        """Read one page by the index of granters."""
        asked: Row = {"tenant": tenant, "granter": granter}
        return self._page("list_by_granter", asked, after, limit)

    def _page(self, query: str, asked: Row, after: Grant | None, limit: int) -> list[Grant]:
        last = ("", "", "", "") if after is None else after[:4]
        names = ("after_subject", "after_key", "after_kind", "after_name")
        asked |= dict(zip(names, last, strict=True))
        asked["limit"] = max(0, min(limit, PAGE_MAX))
        rows = self._holdings.read(self._queries[query], asked)
        return [
            Grant(subject, key, GrantKind(kind), name, granted_by, at)
            for subject, key, kind, name, granted_by, at in rows
        ]

    # ------------------------------------------------------------------------------------ changes

    async def revoke_subject(self, tenant: str, subject: str) -> int:
        """Drop the rows in one change, and note the generation below which none comes back."""
        return await self._revoke("grants_of_subject", {"tenant": tenant, "subject": subject})

    async def revoke_granter(self, tenant: str, granter: str) -> int:
        """The same for what one granter has granted, whoever has it."""
        return await self._revoke("grants_of_granter", {"tenant": tenant, "granter": granter})

    async def _revoke(self, query: str, asked: Row) -> int:
        for _ in range(ATTEMPTS_MAX):
            rows = self._holdings.read(self._queries[query], asked)
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
            if await self._holdings.commit(Change("", tuple(guards), tuple(writes))) is None:
                return len(rows)
        raise Unavailable("Too many change these grants at the same time: nothing was revoked.")

    def _note(self, key: str, generation: int) -> Put | Set:
        """Up to this generation the resource's grants stay away."""
        note: Row = {"generation": generation, "at": self._holdings.now()}
        known = self._holdings.find("revoked", (key,)) is not None
        return Set("revoked", (key,), note) if known else Put("revoked", (key,), note)

    async def give_team(self, tenant: str, team: str, *, role: str) -> None:
        """Put the row; one that is there already is as good."""
        row: Row = {"at": self._holdings.now()}
        put = Put("team_role", self._team_role(tenant, team, role), row)
        await self._holdings.commit(Change("", (), (put,)))

    async def take_from_team(self, tenant: str, team: str, *, role: str) -> None:
        """Drop the row."""
        drop = Drop("team_role", self._team_role(tenant, team, role))
        await self._holdings.commit(Change("", (), (drop,)))

    async def list_team_roles(self, tenant: str, team: str) -> Sequence[str]:
        """Read them all: there are as many as someone has named by hand."""
        asked = {"tenant": tenant, "team": team}
        return [role for (role,) in self._holdings.read(self._queries["list_team_roles"], asked)]

    def _team_role(self, tenant: str, team: str, role: str) -> tuple[str, str, str]:
        try:
            return specs.name(team, "team"), tenant, specs.name(role, "role")
        except Invalid as error:
            raise Rejected(str(error)) from None
