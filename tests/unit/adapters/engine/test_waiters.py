"""Who waits for an engine is told the first word that counts, and is then forgotten."""

import asyncio

import pytest

from tenure.adapters.engine.waiters import Waiters
from tenure.core.operation import OperationState


def test_all_who_wait_for_an_operation_are_told_and_nobody_else():
    async def main():
        waiters = Waiters()
        one, two, other = [
            asyncio.ensure_future(waiters.wait(name, None)) for name in ("a", "a", "b")
        ]
        late = asyncio.ensure_future(waiters.wait("a", 0.0))
        assert await late is None
        assert (len(waiters), "a" in waiters, "c" in waiters) == (3, True, False)
        waiters.notify("a", OperationState.SUCCEEDED)
        waiters.notify("c", None)
        assert [await one, await two] == [OperationState.SUCCEEDED] * 2
        assert (len(waiters), other.done()) == (1, False)
        other.cancel()
        waiters.notify("b", OperationState.SUCCEEDED)  # in the very moment in which it gave up
        with pytest.raises(asyncio.CancelledError):
            await other
        assert len(waiters) == 0

    asyncio.run(main())


def test_the_first_word_of_an_engines_end_counts():
    async def main():
        waiters = Waiters()
        begun = [waiters.was_started]
        await waiters.join()  # it was never started: there is nothing to wait for
        waiters.end()
        waiters.fail(ValueError("before it began"))
        waiters.begin()
        assert [*begun, waiters.was_started] == [False, True]
        one, given_up = [asyncio.ensure_future(waiters.wait("a", None)) for _ in range(2)]
        await asyncio.sleep(0)
        given_up.cancel()
        waiters.fail(ValueError("the store failed"))
        waiters.fail(ValueError("and failed again"))
        waiters.end()
        for waiting in (one, waiters.join()):
            with pytest.raises(ValueError, match="the store failed"):
                await waiting
        with pytest.raises(asyncio.CancelledError):
            await given_up

    asyncio.run(main())


def test_an_engine_that_was_told_to_stop_ends_well_and_once():
    async def main():
        waiters = Waiters()
        waiters.begin()
        waiters.end()
        waiters.end()
        await waiters.join()

    asyncio.run(main())
