"""Gives the commands for backup, restore, move and upgrade the adapters that they need."""

from collections.abc import Iterable
from pathlib import Path

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.store import sqlite
from tenure.core.plan import Plan
from tenure.home.shared_settings import SharedSettingsFile
from tenure.plans.agents.lifecycle import PLANS
from tenure.ports.plane_rows import HOME_ROW
from tenure.sqlite.durable_file import APPLICATION_ID
from tenure.sqlite.migrations import read_migrations
from tenure.sqlite.resource_file import provider_migrations
from tenure.upkeep.backup import Report
from tenure.upkeep.homes import STORE, HomeFile
from tenure.upkeep.move import TableComparison, move
from tenure.upkeep.upgrade import SharedStoreReport
from tenure.wiring.extras import extra


def files_of_a_home() -> list[HomeFile]:
    """The database files of a home that a backup contains, the store first."""
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
                (
                    "identity",
                    identity.APPLICATION_ID,
                    identity.__file__,
                    identity.invalidate_tokens,
                ),
                ("access", access.APPLICATION_ID, access.__file__, lambda _: None),
                ("credentials", credentials.APPLICATION_ID, credentials.__file__, lambda _: None),
            )
        ),
    ]


def plans_of_agents() -> Iterable[Plan]:
    """Every plan that `run_agent_plane` can perform."""
    return PLANS


async def move_store(source: Path, url: str, *, report: Report) -> list[TableComparison]:
    """Move an embedded store to a PostgreSQL; returns the comparison of each table."""
    with extra("postgres"):
        from tenure.adapters.store.postgres.move_target import open_move_target
    shared = SharedSettingsFile(source.parent).read()
    names = {} if shared is None else {HOME_ROW[0]: shared.home}
    async with open_move_target(url) as target:
        return await move(source, target, files_of_a_home()[0], names=names, report=report)


async def inspect_shared_store(url: str) -> SharedStoreReport:
    """Inspect a PostgreSQL store for an upgrade, without changing it."""
    with extra("postgres"):
        from tenure.adapters.store.postgres import upgrade
    return SharedStoreReport(*await upgrade.inspect_upgrade(url))


def now() -> float:
    """The time, by the system's clock."""
    return SystemClock().now()
