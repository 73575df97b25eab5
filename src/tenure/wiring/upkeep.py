"""What the upkeep of a home is handed: its files, its plans, the way to another store, the time."""

from collections.abc import Iterable
from pathlib import Path

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.store import sqlite
from tenure.app.plane import HOME_ROW
from tenure.core.plan import Plan
from tenure.home.shared_settings import TermsFile
from tenure.plans.agents.lifecycle import PLANS
from tenure.sqlite.gate import APPLICATION_ID
from tenure.sqlite.holdings import provider_migrations
from tenure.sqlite.migrations import read_migrations
from tenure.upkeep.backup import Told
from tenure.upkeep.homes import STORE, HomeFile
from tenure.upkeep.move import TableComparison, move
from tenure.upkeep.upgrade import SharedStoreReport
from tenure.wiring.extras import extra


def files_of_a_home() -> list[HomeFile]:
    """What `managing` keeps in a home and a backup holds, the store first."""
    from tenure.adapters.access import local as access
    from tenure.adapters.credentials import local as credentials
    from tenure.adapters.identity import local as identity

    return [
        HomeFile(
            STORE, APPLICATION_ID, read_migrations(Path(sqlite.__file__).parent / "migrations")
        ),
        *(
            HomeFile(
                f"{name}.db", application_id, provider_migrations(Path(str(file)).parent), renew
            )
            for name, application_id, file, renew in (
                ("identity", identity.APPLICATION_ID, identity.__file__, identity.renew),
                ("access", access.APPLICATION_ID, access.__file__, lambda _: None),
                ("credentials", credentials.APPLICATION_ID, credentials.__file__, lambda _: None),
            )
        ),
    ]


def plans_of_agents() -> Iterable[Plan]:
    """Every plan that `managing` can perform."""
    return PLANS


async def move_store(source: Path, url: str, *, told: Told) -> list[TableComparison]:
    """Move an embedded store to the PostgreSQL that the URL names; what was compared."""
    with extra("postgres"):
        from tenure.adapters.store.postgres.landing import landing
    terms = TermsFile(source.parent).read()
    names = {} if terms is None else {HOME_ROW[0]: terms.home}
    async with landing(url) as target:
        return await move(source, target, files_of_a_home()[0], names=names, told=told)


async def look_at_store(url: str) -> SharedStoreReport:
    """What an upgrade asks of the PostgreSQL that the URL names; nothing is changed."""
    with extra("postgres"):
        from tenure.adapters.store.postgres import upgrade
    return SharedStoreReport(*await upgrade.look(url))


def now() -> float:
    """The time, by the system's clock."""
    return SystemClock().now()
