"""A minimal provider: resources that consist of parts, on a disk that may fail."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tenure.core.ids import ResourceKey
from tenure.core.records.table import TableShape
from tenure.ports.store import Drop, Put, Row
from tenure.sqlite.commit_thread import Done, InlineRunner, Work, run_catching
from tenure.sqlite.resource_file import ResourceFile, open_resource_file
from tenure.testing.contracts.store_rows import StoppedClock

TABLES = {"part": TableShape(("key", "name"), ("size",))}
OWN = """
CREATE TABLE part (
    key TEXT NOT NULL, name TEXT NOT NULL, size INTEGER NOT NULL CHECK (size < 1000),
    PRIMARY KEY (key, name)
) WITHOUT ROWID;
"""
APPLICATION_ID = 7


class Failing(InlineRunner):
    """A COMMIT that a test can let fail, after or without writing."""

    def __init__(self) -> None:
        self.fail_after_write: bool | None = None
        """True: the next COMMIT writes and fails; False: it fails without writing."""

    def __call__(self, work: Work, on_done: Done) -> None:
        if self.fail_after_write is None:
            super().__call__(work, on_done)
            return
        error = run_catching(work) if self.fail_after_write else None
        self.fail_after_write = None
        asyncio.get_running_loop().call_soon(on_done, error or OSError("the disk said no"))


def open_small_provider(folder: Path, **more: Any) -> ResourceFile:
    options: dict[str, Any] = {"flush": InlineRunner(), "application_id": APPLICATION_ID, **more}
    return open_resource_file(
        folder / "data" / "it.db",
        migrations=folder / "migrations",
        tables=TABLES,
        clock=StoppedClock(),
        **options,
    )


async def ensure(
    resources: ResourceFile, at: ResourceKey, *names: str, size: object = 1
) -> Mapping[str, object]:
    """Ensure a resource with parts of these names."""

    def extra_changes(before: Row | None) -> list[Put | Drop]:
        existing = [] if before is None else names_of(resources, at)
        return [
            *(Drop("part", (at.text, name)) for name in existing if name not in names),
            *(
                Put("part", (at.text, name), {"size": size})  # type: ignore[dict-item]
                for name in names
                if name not in existing
            ),
        ]

    def reference() -> Mapping[str, object]:
        return {"key": at.text}

    return await resources.ensure(
        at, {"names": names}, reference=reference, extra_changes=extra_changes
    )


async def remove(resources: ResourceFile, at: ResourceKey) -> None:
    await resources.remove(
        at,
        extra_changes=lambda _: [Drop("part", (at.text, name)) for name in names_of(resources, at)],
    )


def names_of(resources: ResourceFile, at: ResourceKey) -> list[str]:
    found = resources.read("SELECT name FROM part WHERE key = ? ORDER BY name", (at.text,))
    return [name for (name,) in found]


class Things:
    """A minimal provider."""

    def __init__(self, resources: ResourceFile) -> None:
        self._resources = resources
        self.inspect, self.list_owned = resources.inspect, resources.list_owned

    async def ensure(self, at: ResourceKey, spec: Mapping[str, object]) -> Mapping[str, object]:
        return await ensure(self._resources, at, *spec)

    async def remove(self, at: ResourceKey) -> None:
        await remove(self._resources, at)
