"""Opens the store that the settings name: a file in the home, or a PostgreSQL database."""

from collections.abc import Mapping

from tenure.adapters.store import sqlite
from tenure.app.wakeups import Wakeup
from tenure.ports.clock import Clock
from tenure.ports.entropy import Entropy
from tenure.ports.store import Key, R, Store
from tenure.settings import Settings
from tenure.wiring.extras import extra


async def open_store(
    settings: Settings, *, clock: Clock, entropy: Entropy, wakeup: Wakeup
) -> Store:
    """Open the store that the settings name."""
    if not is_shared(settings):
        return sqlite.build(settings.store, clock=clock, on_durable=wakeup.notify)
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return await postgres.build(
        settings.store, clock=clock, entropy=entropy, on_durable=wakeup.notify
    )


def is_shared(settings: Settings) -> bool:
    """Whether the store is a PostgreSQL database, which several processes can share."""
    return settings.store.startswith(("postgresql://", "postgres://"))


async def probe_store(settings: Settings) -> str:
    """Check a PostgreSQL store as a start would, without changing it.

    Returns a sentence about it; raises a TenureError if a start would fail.
    """
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return (await postgres.inspect_server(settings.store)).summary


async def probe_replication(settings: Settings) -> tuple[bool, str, str]:
    """Whether acknowledged commits survive a failover, what was found, and advice."""
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return await postgres.inspect_replication(settings.store)


async def names_in_store(settings: Settings) -> Mapping[str, str]:
    """The rows of the store's table `plane`; raises as `probe_store` does."""
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return (await postgres.inspect_server(settings.store)).names


async def read_row(settings: Settings, record: type[R], key: Key) -> R | None:
    """Read one row of a PostgreSQL store without opening the store."""
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return await postgres.read_row(settings.store, record, key)


def store_without_password(settings: Settings) -> str:
    """The address of the store without its password; empty if it is a file in the home."""
    if not is_shared(settings):
        return ""
    with extra("postgres"):
        from tenure.adapters.store.postgres.server import read_address
    return read_address(settings.store).display()
