"""The store that the settings name: a file in the home, or a PostgreSQL."""

from collections.abc import Mapping

from tenure.adapters.store import sqlite
from tenure.app.wakeups import Wakeup
from tenure.ports.clock import Clock
from tenure.ports.entropy import Entropy
from tenure.ports.store import Key, Row, Store
from tenure.settings import Settings
from tenure.wiring.extras import extra


async def open_store(settings: Settings, *, clock: Clock, entropy: Entropy, news: Wakeup) -> Store:
    """The store that the settings name: a file, or a PostgreSQL."""
    if not is_shared(settings):
        return sqlite.build(settings.store, clock=clock, on_durable=news.notify)
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return await postgres.build(
        settings.store, clock=clock, entropy=entropy, on_durable=news.notify
    )


def is_shared(settings: Settings) -> bool:
    """Whether the store is one that several processes use."""
    return settings.store.startswith(("postgresql://", "postgres://"))


async def probe_store(settings: Settings) -> str:
    """What a start would find of a store that is named by a URL; nothing is changed.

    A sentence, or a TenureError with one that says what stands in the way.
    """
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return (await postgres.inspect_server(settings.store)).summary


async def probe_replication(settings: Settings) -> tuple[bool, str, str]:
    """Whether every standby has what was acknowledged, what was found, and what to do about it."""
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return await postgres.look_at_replication(settings.store)


async def names_in_store(settings: Settings) -> Mapping[str, str]:
    """Whose store it is that a URL names, as its table `plane` says; else as `probe_store`."""
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return (await postgres.inspect_server(settings.store)).names


async def look_up(settings: Settings, table: str, key: Key) -> Row | None:
    """One row of a store that is named by a URL, which is not opened; nothing is changed."""
    with extra("postgres"):
        from tenure.adapters.store import postgres
    return await postgres.read_row(settings.store, table, key)


def shown_store(settings: Settings) -> str:
    """Where the records are, as it may be told; empty: in the home."""
    if not is_shared(settings):
        return ""
    with extra("postgres"):
        from tenure.adapters.store.postgres.server import read_address
    return read_address(settings.store).shown()
