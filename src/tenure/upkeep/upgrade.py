"""What this release would do to a home: its migrations, and the open operations it must finish.

It changes nothing, and says whether the release that wrote the home could go back to it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from tenure.core.errors import Invalid, StoreError
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.storage.migrations import reached
from tenure.upkeep.homes import STORE, Held, is_there, reading, refuse_foreign, store_elsewhere


class Pending(NamedTuple):
    """A migration that the next start would apply."""

    file: str
    name: str
    only_adds: bool
    """Whether the release before can go on with the file afterwards."""


class Looked(NamedTuple):
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
    def is_possible(self) -> bool:
        """Whether this release can take the home over."""
        return not self.missing and not self.refused

    @property
    def can_go_back(self) -> bool:
        """Whether the release before can take it back."""
        return all(one.only_adds for one in self.pending)


def look(home: Path, files: Sequence[Held], plans: Iterable[Plan]) -> Looked:
    """Compare a home with this release; a plane may run in it."""
    if not is_there(home):
        raise Invalid(f"{home} holds no plane: there is no {STORE} in it")
    elsewhere = store_elsewhere(home)
    pending: list[Pending] = []
    refused: list[str] = []
    opened, missing = 0, set[str]()
    for held in files:
        path = home / held.name
        if not path.exists() or (held.name == STORE and elsewhere):
            continue
        try:
            refuse_foreign(path, held)
            with reading(path) as reader:
                last = reached(reader)
                if held.name == STORE:
                    opened, missing = _open_operations(reader, Catalogue(plans))
        except StoreError as error:
            refused.append(str(error))
            continue
        pending += [
            Pending(held.name, one.name, one.adds) for one in held.migrations if one.number > last
        ]
    return Looked(pending, opened, sorted(missing), refused, elsewhere)


def _open_operations(store: apsw.Connection, catalogue: Catalogue) -> tuple[int, set[str]]:
    rows = store.execute(
        "SELECT operation.plan, plan.body, count(*) FROM operation"
        " LEFT JOIN plan ON plan.digest = operation.plan"
        " WHERE operation.ended_at IS NULL GROUP BY operation.plan"
    ).fetchall()
    missing: set[str] = set()
    for digest, body, _ in rows:
        if body is not None:
            missing |= set(catalogue.missing(str(body)))
        elif catalogue.kept(str(digest)) is None:
            missing.add(f"plan {digest}")
    return sum(int(str(count)) for _, _, count in rows), missing
