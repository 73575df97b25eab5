"""The task queue of a plane: its own, the same for all its processes, and kept at an upgrade."""

import asyncio
from typing import Any, cast

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.adapters.engine.temporal.queue import SHARED_QUEUE, find_or_name_queue, find_queue
from tenure.ports.store import Change, Put, Row
from tenure.testing import memory_store


def a_store() -> Any:
    return cast(Any, memory_store.build(clock=SystemClock(), tables=memory_store.Tables()))


def test_processes_of_one_plane_have_one_queue_and_no_other_plane_has_it():
    async def main() -> None:
        ours, theirs, entropy = a_store(), a_store(), SystemEntropy()
        assert not await find_queue(ours.find)
        at_once = await asyncio.gather(*(find_or_name_queue(ours, entropy) for _ in range(3)))
        assert len(set(at_once)) == 1
        assert await find_queue(ours.find) == at_once[0]
        assert await find_or_name_queue(theirs, entropy) != at_once[0]

    asyncio.run(main())


def test_a_plane_that_had_the_queue_of_all_keeps_it_with_its_open_runs():
    async def main() -> None:
        store = a_store()
        row: Row = {"holder": "temporal", "token": 1, "until": 1e11}
        await store.commit(Change("", (), (Put("lease", ("worker/temporal",), row),)))
        assert await find_or_name_queue(store, SystemEntropy()) == SHARED_QUEUE == "tenure"

    asyncio.run(main())


def test_of_two_who_name_it_the_first_counts():
    async def main() -> None:
        store, late = a_store(), a_store()
        first = await find_or_name_queue(store, SystemEntropy())
        late.commit = store.commit  # it has looked before the other one named it
        assert await find_or_name_queue(late, SystemEntropy()) == first

    asyncio.run(main())
