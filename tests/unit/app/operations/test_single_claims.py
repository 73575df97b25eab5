"""Operations claimed one by one: who may record what, and whose calls have an unknown outcome."""

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from tenure.adapters.clock.system import SystemClock, SystemEntropy
from tenure.app.operations import admission, entry_change, reads
from tenure.app.operations import commands as operations
from tenure.app.operations.admission import OperationRequest
from tenure.app.operations.executor import Executor
from tenure.app.operations.single_claims import SingleClaims
from tenure.app.plane import Plane
from tenure.app.start_checks import prepare
from tenure.core.endings import Done
from tenure.core.errors import OutcomeUnknown, StaleToken, Unavailable
from tenure.core.moves import Act
from tenure.core.operation import EntryKind, IntentState, OperationState
from tenure.core.plan import Plan, Step, nothing
from tenure.core.records import IntentRecord
from tenure.plans.catalogue import Catalogue
from tenure.ports.store import Queue
from tenure.testing import memory_store
from tenure.testing.operators import by
from tenure.testing.patches import patched

WORKER, IDLE_WORKER = "temporal", "temporal/rest"


class Nobody:
    """An engine that moves nothing: what moves is the test's own doing."""

    worker = ""

    def execute(self, handle):
        pass

    def wake(self, operation, *, interrupt=False):
        pass


class Bench:
    """One plane, one worker, and a provider whose answers the test gives when it likes."""

    def __init__(self) -> None:
        self.store: Any = memory_store.build(clock=SystemClock(), tables=memory_store.Tables())
        self.asked: list[asyncio.Future[Any]] = []

        async def ask(call):
            answer = asyncio.get_running_loop().create_future()
            self.asked.append(answer)
            return await answer

        one = Step("one", ask, undo=ask, inspect=ask, slot="one")
        two = Step("two", ask, undo=ask, inspect=ask, slot="two")
        check = Step("check", ask, undo=nothing, inspect=ask)
        plans = [
            Plan("single", stages=((one,), (check,))),
            Plan("siblings", stages=((one, two),)),
        ]
        catalogue, entropy = Catalogue(plans), SystemEntropy()
        self.work: Any = Executor(
            "plane", store=self.store, entropy=entropy, catalogue=catalogue, providers={}
        )
        self.claims: Any = SingleClaims(WORKER, idle_worker=IDLE_WORKER)
        self.plane = Plane(
            id="plane",
            store=self.store,
            engine=cast(Any, Nobody()),
            entropy=entropy,
            catalogue=catalogue,
            providers={},
        )
        self.claims.attach(self.plane)

    async def accept(self, plan: str = "single") -> str:
        await prepare(self.plane)
        return (await admission.accept(self.plane, OperationRequest(plan))).id

    async def begin(self, handle: Any, step: str) -> "asyncio.Task[None]":
        """A move of this step, its call out at the provider."""
        (move,) = [m for m in self.work.moves(handle).due if m.step.name == step]
        before = len(self.asked)
        task: asyncio.Task[None] = asyncio.ensure_future(self.work.perform(handle, move))
        while len(self.asked) == before:  # noqa: ASYNC110 (the call is made within a few turns)
            await asyncio.sleep(0)
        return task

    def acts(self, handle: Any) -> dict[str, Act]:
        return {m.step.name: m.act for m in self.work.moves(handle).due}


def test_whoever_begins_second_is_turned_away():
    async def main():
        bench = Bench()
        name = await bench.accept()
        handle = await bench.claims.begin(name)
        assert handle is not None
        assert (handle.worker, handle.token, handle.state) == (WORKER, 1, OperationState.RUNNING)
        assert bench.acts(handle) == {"one": Act.DO}  # nobody has called anything
        with pytest.raises(StaleToken):
            await bench.claims.begin(name)

    asyncio.run(main())


def test_what_is_in_memory_after_a_claim_is_what_is_in_the_store():
    async def main():
        bench = Bench()
        name = await bench.accept()
        for claim in (bench.claims.begin, bench.claims.take_over):
            handle = await claim(name)
            read = await bench.work.load(name, handle.token)
            for slot in ("token", "revision", "state", "worker", "intents", "due_at"):
                assert getattr(handle, slot) == getattr(read, slot), slot

    asyncio.run(main())


@pytest.mark.parametrize("is_running", [False, True])
def test_a_single_claim_writes_the_columns_that_the_claim_of_a_store_writes(is_running):
    async def main():
        rows = []
        for by_store in (False, True):
            bench = Bench()
            name = await bench.accept()
            if is_running:
                await bench.claims.begin(name)
            before = (await bench.store.load(name)).operation
            if by_store:
                await bench.store.claim(Queue.OPERATIONS, WORKER, limit=1)
            else:
                await (bench.claims.take_over if is_running else bench.claims.begin)(name)
            after = await bench.store.load(name)
            changed = {
                column: value
                for column, value in after.operation._asdict().items()
                if value != getattr(before, column)
            }
            rows.append((changed, [(i.token, i.unknown_since is None) for i in after.intents]))
        assert rows[0] == rows[1]

    asyncio.run(main())


def test_a_takeover_makes_what_was_called_unknown_and_fences_whoever_called():
    async def main():
        bench = Bench()
        name = await bench.accept()
        old = await bench.claims.begin(name)
        call = await bench.begin(old, "one")
        new = await bench.claims.take_over(name)
        assert bench.acts(new) == {"one": Act.INSPECT}
        bench.asked[0].set_result(Done({}))
        with pytest.raises(StaleToken):
            await call
        assert (await bench.store.load(name)).journal[-1].kind == "accepted"

    asyncio.run(main())


def test_what_was_put_to_rest_is_taken_up_as_it_was():
    async def main():
        bench = Bench()
        name = await bench.accept()
        handle = await bench.claims.begin(name)
        assert await bench.claims.release_idle(handle)
        again = await bench.claims.take_over(name)
        assert again.token > handle.token
        assert bench.acts(again) == {"one": Act.DO}

    asyncio.run(main())


def test_nothing_is_put_to_rest_for_which_something_was_recorded_meanwhile():
    async def main():
        bench = Bench()
        name = await bench.accept()
        handle = await bench.claims.begin(name)
        await operations.signal(bench.plane, by("a friend"), name, name="go")
        assert not await bench.claims.release_idle(handle)

    asyncio.run(main())


def test_what_another_engine_holds_is_left_alone():
    async def main():
        bench = Bench()
        name = await bench.accept()
        bench.store.tables.rows["operation"][name,]["worker"] = "an embedded one"
        with pytest.raises(StaleToken):
            await bench.claims.take_over(name)

    asyncio.run(main())


def test_a_takeover_goes_above_every_token_that_was_ever_given_out():
    async def main():
        bench = Bench()
        name = await bench.accept()
        handle = await bench.claims.begin(name)
        await bench.claims.raise_token(handle, "one", 7)
        assert (await bench.claims.take_over(name)).token == 8

    asyncio.run(main())


async def _a_first_attempt_comes_back():
    """The second attempt's call is unknown; the first, long lost, now says: not applied."""
    bench = Bench()
    name = await bench.accept()
    first = await bench.claims.begin(name)
    lost = await bench.begin(first, "one")
    second = await bench.claims.raise_token(await bench.work.load(name, first.token), "one", 2)
    look = await bench.begin(second, "one")
    bench.asked[1].set_result(OutcomeUnknown("no answer"))
    await look
    bench.asked[0].set_result(Unavailable("not applied"))
    fenced = False
    try:
        await lost
    except StaleToken:
        fenced = True
    row = await bench.store.find(IntentRecord, (name, "one"))
    return fenced, row.unknown_since is not None, row.detail


def test_an_attempt_whose_token_was_raised_records_nothing_more():
    assert asyncio.run(_a_first_attempt_comes_back()) == (True, True, "no answer")


def test_ablation_without_the_guard_on_the_intents_token_a_lost_attempt_is_believed():
    real = entry_change._build_poll

    def record_unguarded(*args):
        writing = real(*args)
        change = writing.change.expand_prepared()
        guards = tuple(guard for guard in change.guards if guard.table != "intent")
        writing.change = replace(change, guards=guards)
        return writing

    with patched(entry_change, _build_poll=record_unguarded):
        fenced, unknown, _ = asyncio.run(_a_first_attempt_comes_back())
    assert not fenced
    assert not unknown  # so the call whose outcome nobody knows would simply be sent again


def test_a_raised_token_does_not_fence_a_sibling():
    async def main():
        bench = Bench()
        name = await bench.accept("siblings")
        token = (await bench.claims.begin(name)).token
        one, two = [await bench.work.load(name, token) for _ in range(2)]
        first = await bench.begin(one, "one")
        sibling = await bench.begin(two, "two")
        again = await bench.claims.raise_token(await bench.work.load(name, token), "one", 2)
        assert bench.acts(again) == {"one": Act.INSPECT, "two": Act.DO}
        bench.asked[1].set_result(Done({}))
        await sibling
        assert (await bench.work.load(name, token)).intents["two"].state is IntentState.PRESENT
        first.cancel()

    asyncio.run(main())


def test_a_token_is_raised_once_to_each_number():
    async def main():
        bench = Bench()
        name = await bench.accept()
        handle = await bench.claims.begin(name)
        await bench.claims.raise_token(handle, "one", 3)
        for late in (2, 3):
            with pytest.raises(StaleToken):
                await bench.claims.raise_token(handle, "one", late)

    asyncio.run(main())


def test_siblings_that_try_for_one_number_in_the_journal_have_changes_of_their_own():
    async def main():
        bench = Bench()
        name = await bench.accept("siblings")
        handle = await bench.claims.begin(name)
        now = bench.store.now()
        steps = handle.plan.steps
        written = [
            entry_change.build_entry(handle, EntryKind.DONE, step, {}, now, token=1).change.id
            for step in steps
        ]
        assert len(set(written)) == len(steps)

    asyncio.run(main())


def test_a_cancel_is_the_operations_own():
    async def main():
        bench = Bench()
        name = await bench.accept()
        await bench.claims.cancel(name)
        seen = await reads.get_operation(bench.plane, "default", name)
        assert (seen.state, seen.error) == (OperationState.COMPENSATED, "cancelled by temporal")
        with pytest.raises(StaleToken):
            await bench.claims.cancel("no such operation")

    asyncio.run(main())
