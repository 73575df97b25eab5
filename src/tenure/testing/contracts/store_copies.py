"""The contract of a store that can copy itself, for stores without a better backup."""

import asyncio
from pathlib import Path
from typing import Protocol

import pytest

from tenure.core.errors import StoreError
from tenure.ports.clock import Clock
from tenure.ports.store import Store
from tenure.testing.contracts.store_rows import (
    Names,
    StoppedClock,
    Stores,
    event,
    intent,
    operation,
    scenario,
)


class CopiedStores(Stores, Protocol):
    """Opens the store under test and its copies."""

    async def open_copy(self, path: str, clock: Clock) -> Store:
        """Open the copy at this path."""
        ...

    def backup_path(self) -> str:
        """A path for a new backup; no file exists there yet."""
        ...


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


class CopyPromises:
    """Derive from this and from `StoreContract`, which has its fixtures."""

    @scenario
    async def test_a_backup_opens_as_a_store_of_its_own(
        self, store: Store, stores: CopiedStores, clock: StoppedClock, change: Names
    ) -> None:
        await store.commit(change(operation("a"), intent("a", "one"), event()))
        path = stores.backup_path()
        copying = asyncio.ensure_future(store.backup(path))
        await asyncio.gather(*(store.commit(change(operation(f"later{n}"))) for n in range(50)))
        await copying
        copy = await stores.open_copy(path, clock)
        assert await copy.load("a") == await store.load("a")
        assert await copy.was_committed("change-1")
        assert await copy.commit(change(event())) is None
        assert [row.position for row in await copy.list_events()] == [1, 2]
        assert len(await store.list_events()) == 1
        await copy.close()

    @scenario
    async def test_a_backup_never_replaces_a_file(self, store: Store, stores: CopiedStores) -> None:
        await store.backup(stores.backup_path())
        before = _read(stores.backup_path())
        with pytest.raises(StoreError):
            await store.backup(stores.backup_path())
        assert _read(stores.backup_path()) == before
