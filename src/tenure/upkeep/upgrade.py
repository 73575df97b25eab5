"""What this release would do to a home: its migrations, and the open operations it must finish.

It changes nothing, and says whether the release that wrote the home could go back to it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.core.errors import Invalid, StoreError
from tenure.core.plan import Plan
from tenure.home.shared_settings import TermsFile
from tenure.plans.catalogue import Catalogue
from tenure.sqlite.migrations import Migration, last_migration
from tenure.upkeep.homes import STORE, HomeFile, is_there, reading, refuse_foreign, store_elsewhere


class Pending(NamedTuple):
    """A migration that the next start would apply."""

    file: str
    name: str
    only_adds: bool
    """Whether the release before can go on with the file afterwards."""


class SharedStoreReport(NamedTuple):
    """What is in a store that is no file of the home."""

    home: str
    """The name of the home that it belongs to; empty: it knows of none."""
    lacks: Sequence[Migration]
    followed: Sequence[tuple[str, str | None, int]]
    """Each plan that open operations follow: its digest, its body if it is kept, how many do."""


class UpgradeReport(NamedTuple):
    """What a look at a home found."""

    pending: list[Pending]
    open_operations: int
    missing: list[str]
    """Every plan@version/step of an open operation that this release lacks."""
    refused: list[str]
    """Why a file cannot be opened by this release."""
    store: str = ""
    """Where the store is that was not looked at, since it is no file of the home."""

    @property
    def is_possible(self) -> bool | None:
        """Whether this release can take the home over; None: that is not known."""
        if self.missing or self.refused:
            return False
        return None if self.store else True

    @property
    def can_go_back(self) -> bool | None:
        """Whether the release before can take it back; None: that is not known."""
        if not all(one.only_adds for one in self.pending):
            return False
        return None if self.store else True


def look(
    home: Path,
    files: Sequence[HomeFile],
    plans: Iterable[Plan],
    kept: SharedStoreReport | None = None,
) -> UpgradeReport:
    """Compare a home with this release; a plane may run in it.

    `kept` is what is in its store, if that is elsewhere and could be read.
    """
    if not is_there(home):
        raise Invalid(f"{home} holds no plane: there is no {STORE} in it")
    elsewhere, catalogue = store_elsewhere(home), Catalogue(plans)
    pending: list[Pending] = []
    refused: list[str] = []
    opened, missing, unseen = 0, set[str](), elsewhere
    if elsewhere and kept is not None:
        _refuse_anothers(home, kept)
        opened, missing = _compared(kept.followed, catalogue)
        pending += [Pending("the store", one.name, one.adds) for one in kept.lacks]
        unseen = ""
    for held in files:
        path = home / held.name
        if not path.exists() or (held.name == STORE and elsewhere):
            continue
        try:
            refuse_foreign(path, held)
            with reading(path) as reader:
                last = last_migration(reader)
                if held.name == STORE:
                    opened, missing = _compared(_followed(reader), catalogue)
        except StoreError as error:
            refused.append(str(error))
            continue
        pending += [
            Pending(held.name, one.name, one.adds) for one in held.migrations if one.number > last
        ]
    return UpgradeReport(pending, opened, sorted(missing), refused, unseen)


def _refuse_anothers(home: Path, kept: SharedStoreReport) -> None:
    terms = TermsFile(home).read()
    if kept.home and terms is not None and kept.home != terms.home:
        raise Invalid(
            f"the store that was named belongs to another home than {home}, whose store is"
            f" {terms.store}: name that one. Nothing was changed"
        )


def _followed(store: apsw.Connection) -> list[tuple[str, str | None, int]]:
    rows = store.execute(
        "SELECT operation.plan, plan.body, count(*) FROM operation"
        " LEFT JOIN plan ON plan.digest = operation.plan"
        " WHERE operation.ended_at IS NULL GROUP BY operation.plan"
    ).fetchall()
    return [
        (str(digest), None if body is None else str(body), int(str(count)))
        for digest, body, count in rows
    ]


def _compared(
    followed: Iterable[tuple[str, str | None, int]], catalogue: Catalogue
) -> tuple[int, set[str]]:
    """How many operations are open, and what this release lacks for them."""
    opened, missing = 0, set[str]()
    for digest, body, count in followed:
        opened += count
        if body is not None:
            missing |= set(catalogue.missing(body))
        elif catalogue.kept(digest) is None:
            missing.add(f"plan {digest}")
    return opened, missing
