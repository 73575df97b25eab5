"""Inspects a home for an upgrade: pending migrations, and open operations to finish.

It changes nothing.  The report says whether the previous release could use the home again.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.core.errors import Invalid, StoreError
from tenure.core.plan import Plan
from tenure.home.shared_settings import SharedSettingsFile
from tenure.plans.catalogue import Catalogue
from tenure.sqlite.migrations import Migration, last_migration
from tenure.upkeep.homes import STORE, HomeFile, has_plane, reading, refuse_foreign, store_elsewhere


class Pending(NamedTuple):
    """A migration that the next start would apply."""

    file: str
    name: str
    only_adds: bool
    """Whether the previous release can still use the file afterwards."""


class SharedStoreReport(NamedTuple):
    """The state of a PostgreSQL store."""

    home: str
    """The name of the home that it belongs to; empty if it has none."""
    missing: Sequence[Migration]
    open_plans: Sequence[tuple[str, str | None, int]]
    """Each plan of open operations: its digest, its body if it is stored, their number."""


class UpgradeReport(NamedTuple):
    """The result of the inspection of a home."""

    pending: list[Pending]
    open_operations: int
    missing: list[str]
    """Every plan@version/step of an open operation that this release lacks."""
    refused: list[str]
    """Reasons why this release cannot open a file."""
    store: str = ""
    """The address of a store outside the home that was not read."""

    @property
    def is_possible(self) -> bool | None:
        """Whether this release can use the home; None if that is not known."""
        if self.missing or self.refused:
            return False
        return None if self.store else True

    @property
    def can_go_back(self) -> bool | None:
        """Whether the previous release can use the home afterwards; None if that is not known."""
        if not all(one.only_adds for one in self.pending):
            return False
        return None if self.store else True


def inspect_home(
    home: Path,
    files: Sequence[HomeFile],
    plans: Iterable[Plan],
    shared_store: SharedStoreReport | None = None,
) -> UpgradeReport:
    """Compare a home with this release; a plane may run in it.

    `shared_store` is the report of its PostgreSQL store, if it has one that could be read.
    """
    if not has_plane(home):
        raise Invalid(f"{home} has no plane: there is no {STORE} in it")
    store_address, catalogue = store_elsewhere(home), Catalogue(plans)
    pending: list[Pending] = []
    refusals: list[str] = []
    open_count, missing, unread_store = 0, set[str](), store_address
    if store_address and shared_store is not None:
        _refuse_other_home(home, shared_store)
        open_count, missing = _compare_plans(shared_store.open_plans, catalogue)
        pending += [Pending("the store", one.name, one.only_adds) for one in shared_store.missing]
        unread_store = ""
    for file in files:
        path = home / file.name
        if not path.exists() or (file.name == STORE and store_address):
            continue
        try:
            refuse_foreign(path, file)
            with reading(path) as reader:
                last = last_migration(reader)
                if file.name == STORE:
                    open_count, missing = _compare_plans(_open_plans(reader), catalogue)
        except StoreError as error:
            refusals.append(str(error))
            continue
        pending += [
            Pending(file.name, one.name, one.only_adds)
            for one in file.migrations
            if one.number > last
        ]
    return UpgradeReport(pending, open_count, sorted(missing), refusals, unread_store)


def _refuse_other_home(home: Path, shared_store: SharedStoreReport) -> None:
    shared = SharedSettingsFile(home).read()
    if shared_store.home and shared is not None and shared_store.home != shared.home:
        raise Invalid(
            f"the store that was named belongs to another home than {home}, whose store is"
            f" {shared.store}: name that one. Nothing was changed"
        )


def _open_plans(store: apsw.Connection) -> list[tuple[str, str | None, int]]:
    rows = store.execute(
        "SELECT operation.plan, plan.body, count(*) FROM operation"
        " LEFT JOIN plan ON plan.digest = operation.plan"
        " WHERE operation.ended_at IS NULL GROUP BY operation.plan"
    ).fetchall()
    return [
        (str(digest), None if body is None else str(body), int(str(count)))
        for digest, body, count in rows
    ]


def _compare_plans(
    open_plans: Iterable[tuple[str, str | None, int]], catalogue: Catalogue
) -> tuple[int, set[str]]:
    """The number of open operations, and the plans and steps that this release lacks for them."""
    open_count, missing = 0, set[str]()
    for digest, body, count in open_plans:
        open_count += count
        if body is not None:
            missing |= set(catalogue.missing(body))
        elif catalogue.find(digest) is None:
            missing.add(f"plan {digest}")
    return open_count, missing
