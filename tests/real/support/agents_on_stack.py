"""Agents on a stack: the product's plans over a world of fakes, in real time, and hands beside it.

What the hands do is what the world or a stranger could do: a resource turns up late, a row of the
audit log is changed in the database itself.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import asyncpg

from proofs.agents.lifecycle import CALLER, PLANS, Fakes, spec_of
from proofs.kills.kill9 import all_ended
from tenure.adapters.store.postgres import PostgresStore, server
from tenure.app.agents import commands as agents
from tenure.app.plane import Plane
from tenure.core.records import OutboxRecord, TombstoneRecord
from tenure.ports.store import Change, Drop, Row, Store
from tenure.testing.fakes import Thing, World
from tenure.testing.faults import Faults
from tenure.testing.loop import SeededLoop
from tenure.wiring import run_plane
from tests.real.support.stacks import PAGE, Stack
from tests.real.support.temporal_planes import RealTime, with_real_time_limits

LIFECYCLE_PLANS = [with_real_time_limits(plan) for plan in PLANS.values()]
END_SECONDS = 120.0


class AgentStack:
    """One plane, its world, and who uses it."""

    def __init__(self, stack: Stack, plane: Plane, world: World, fakes: Fakes) -> None:
        self.stack = stack
        self.plane = plane
        self.world = world
        self.fakes = fakes

    async def make(self, *names: str, **kwargs: object) -> list[str]:
        """Agents that are READY; their uids."""
        asked = [
            await agents.create_agent(self.plane, CALLER, spec_of(name, **kwargs)) for name in names
        ]
        await self.rest()
        return [one.agent for one in asked]

    async def verb(self, verb: str, name: str) -> None:
        """Ask for a verb and wait for its end."""
        await getattr(agents, f"{verb}_agent")(self.plane, CALLER, name)
        await self.rest()

    async def rest(self) -> None:
        """Everything has ended."""
        assert await all_ended(self.plane, END_SECONDS)

    async def leave(self, name: str, *, is_watched: bool = False) -> tuple[str, str]:
        """A runtime that is there again after its agent was deleted; where it stands."""
        (uid,) = await self.make(name)
        (thing,) = self.world.holds(provider="runtime", agent=uid)
        await self.verb("delete", name)
        if not is_watched:
            stones = await self.plane.store.list_rows(TombstoneRecord, {}, limit=PAGE)
            drops = [Drop("tombstone", (str(s.operation), s.step)) for s in stones]
            await self.plane.store.commit(Change("", (), tuple(drops)))
        return self.put(thing)

    def put(self, thing: Thing, *, since: float = 0.0) -> tuple[str, str]:
        """This is there since then, by the clock on the wall."""
        at = ("runtime", thing.key.text)
        thing.since = since
        self.world.things[at] = thing
        return at

    async def events(self) -> list[OutboxRecord]:
        """All that are told by now, and as many as were committed."""
        store = self.plane.store
        count = await store.count_rows(OutboxRecord, {})
        async with asyncio.timeout(END_SECONDS):
            while len(rows := list(await store.list_events(limit=PAGE))) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return rows

    async def write_audit(self, rows: Mapping[Any, Row]) -> None:
        """Put these in place of the audit log, as somebody who has the database can."""
        columns = list(next(iter(rows.values()), {}))
        values = [[row[name] for name in columns] for row in rows.values()]
        said = ", ".join(columns)
        if not self.stack.is_shared:
            writer = cast(Any, self.plane.store)._file.writer
            with writer:
                for (name,) in writer.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'audit'"
                ).fetchall():
                    writer.execute(f"DROP TRIGGER {name}")
                writer.execute("DELETE FROM audit")
                places = ", ".join("?" for _ in columns)
                writer.executemany(f"INSERT INTO audit ({said}) VALUES ({places})", values)
            return
        address = server.read_address(self.stack.store, "")
        base = await asyncpg.connect(address.url, server_settings={"search_path": address.schema})
        try:
            async with base.transaction():
                await base.execute("SET LOCAL session_replication_role = replica")  # no triggers
                await base.execute("DELETE FROM audit")
                places = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
                if values:
                    await base.executemany(f"INSERT INTO audit ({said}) VALUES ({places})", values)
        finally:
            await base.close()

    @property
    def store(self) -> Store:
        return self.plane.store


@asynccontextmanager
async def open_agent_stack(stack: Stack) -> AsyncIterator[AgentStack]:
    """A plane of agents on this stack, while the block lasts."""
    world = World(cast(SeededLoop, RealTime()))
    fakes = Fakes(world, Faults())
    async with run_plane(stack.settings(), plans=LIFECYCLE_PLANS, providers=fakes.all()) as plane:
        assert isinstance(plane.store, PostgresStore) == stack.is_shared
        yield AgentStack(stack, plane, world, fakes)
