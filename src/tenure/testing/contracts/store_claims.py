"""The part of the store's contract about `claim`, which assigns operations to workers."""

import asyncio
from itertools import product

import pytest

from tenure.core.decisions import unknown_after_claim
from tenure.core.operation import IntentState
from tenure.core.records import IntentRecord, OperationRecord
from tenure.ports.store import ClaimedOperation, CommitRefusal, Is, Queue, Store
from tenure.testing.contracts.store_rows import (
    Names,
    StoppedClock,
    intent,
    lease,
    operation,
    scenario,
    stored_record,
)


class ClaimPromises:
    """A part of `StoreContract`, which has its fixtures."""

    @scenario
    async def test_claims_the_oldest_open_operations_that_nobody_alive_holds(
        self, store: Store, clock: StoppedClock, change: Names
    ) -> None:
        await store.commit(
            change(
                operation("e", worker="dead", due_at=5.0), operation("d", worker="live"),
                operation("c", worker=""),
                operation("b", worker="late"), operation("a", worker="dead", ended_at=9.0),
                operation("f", worker="gone"),
                lease("live", clock.at), lease("late", clock.at - 0.001),
            )
        )  # fmt: skip
        assert list(await store.claim(Queue.OPERATIONS, "me", limit=3)) == [
            ClaimedOperation("b", 1, None),
            ClaimedOperation("c", 1, None),
            ClaimedOperation("e", 1, 5.0),
        ]
        await store.commit(change(lease("me", clock.at)))
        assert list(await store.claim(Queue.OPERATIONS, "me", limit=3)) == [
            ClaimedOperation("f", 1, None)
        ]
        assert list(await store.claim(Queue.OPERATIONS, "me", limit=3)) == []
        clock.at += 1
        assert [name for name, _, _ in await store.claim(Queue.OPERATIONS, "new", limit=9)] == [
            "b",
            "c",
            "d",
            "e",
            "f",
        ]

    @scenario
    async def test_what_follows_a_plan_that_the_worker_cannot_perform_is_left(
        self, store: Store, change: Names
    ) -> None:
        plans = {"a": "old", "b": "new", "c": "newest", "d": "old", "e": "new", "f": "old"}
        await store.commit(change(*(operation(name, plan=plan) for name, plan in plans.items())))
        some = await store.claim(
            Queue.OPERATIONS, "me", limit=2, except_plans=("new", "newest", "gone")
        )
        assert [one.id for one in some] == ["a", "d"], "what is left takes nobody's place"
        assert await store.find(OperationRecord, ("b",)) == stored_record(
            operation("b", plan="new")
        )
        rest = await store.claim(Queue.OPERATIONS, "newer", limit=9, except_plans=["old"])
        assert [one.id for one in rest] == ["b", "c", "e"]

    @pytest.mark.parametrize("state", ["PENDING", "RUNNING", "WAITING", "COMPENSATING", "STUCK"])
    @scenario
    async def test_a_claimed_operation_has_a_new_worker_token_and_revision_and_is_not_pending(
        self, store: Store, change: Names, state: str
    ) -> None:
        put = operation("a", state=state, token=4, revision=7, worker="dead")
        await store.commit(change(put))
        assert list(await store.claim(Queue.OPERATIONS, "me", limit=1)) == [
            ClaimedOperation("a", 5, None)
        ]
        after = "RUNNING" if state == "PENDING" else state
        claimed = operation("a", state=after, token=5, revision=8, worker="me")
        assert await store.find(OperationRecord, ("a",)) == stored_record(claimed)

    @scenario
    async def test_a_claim_fences_every_intent_that_is_not_burned(
        self, store: Store, clock: StoppedClock, change: Names
    ) -> None:
        steps = {"i": "INTENDED", "p": "PRESENT", "f": "REFUSED", "r": "REMOVING", "b": "BURNED"}
        await store.commit(
            change(
                operation("a", state="RUNNING", token=4), operation("other", worker="live"),
                lease("live", clock.at),
                *(intent("a", step, state=state, token=2) for step, state in steps.items()),
                intent("a", "known", token=2, unknown_since=3.0), intent("other", "i", token=2),
            )
        )  # fmt: skip
        await store.claim(Queue.OPERATIONS, "me", limit=9)
        loaded = await store.load("a")
        assert loaded is not None
        assert {row.step: (row.token, row.unknown_since) for row in loaded.intents} == {
            "i": (5, clock.at), "p": (5, None), "f": (5, None), "r": (5, clock.at), "b": (2, None),
            "known": (5, 3.0),
        }  # fmt: skip
        assert await store.find(IntentRecord, ("other", "i")) == stored_record(
            intent("other", "i", token=2)
        )

    @scenario
    async def test_a_claim_makes_unknown_exactly_what_the_recovery_rule_says(
        self, store: Store, clock: StoppedClock, change: Names
    ) -> None:
        """The SQL of a store has the same result as `tenure.core.decisions.unknown_after_claim`."""
        cases = list(
            product(("PENDING", "RUNNING", "COMPENSATING", "STUCK"), IntentState, (None, 3.0))
        )
        puts = [operation(state, state=state, token=1) for state in {case[0] for case in cases}]
        puts += [
            intent(state, f"{hold}{since or 0:g}".lower(), state=hold, token=1, unknown_since=since)
            for state, hold, since in cases
        ]
        await store.commit(change(*puts))
        await store.claim(Queue.OPERATIONS, "me", limit=9)
        for state, hold, since in cases:
            row = await store.find(IntentRecord, (state, f"{hold}{since or 0:g}".lower()))
            expected = unknown_after_claim(hold, since, was_called=state != "PENDING", now=clock.at)
            assert row is not None
            assert row.unknown_since == expected, (state, hold, since)

    @scenario
    async def test_what_was_pending_has_been_called_by_nobody(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), intent("a", "one")))
        await store.claim(Queue.OPERATIONS, "me", limit=1)
        assert await store.find(IntentRecord, ("a", "one")) == stored_record(
            intent("a", "one", token=1)
        )

    @scenario
    async def test_a_stale_token_is_refused_after_a_takeover(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(
            change(operation("a", state="RUNNING", token=1), intent("a", "one", token=1))
        )
        guard = Is("intent", ("a", "one"), {"token": 1})
        claim, late = (
            store.claim(Queue.OPERATIONS, "me", limit=1),
            store.commit(change(guards=(guard,))),
        )
        await claim
        refused = await late
        assert isinstance(refused, CommitRefusal)
        assert refused.row is not None
        assert (refused.what, refused.row["token"]) == (guard, 2)

    @scenario
    async def test_two_claims_never_share_an_operation(
        self, store: Store, clock: StoppedClock, change: Names
    ) -> None:
        await store.commit(change(*(lease(name, clock.at + 9) for name in "xyz")))
        await asyncio.gather(*(store.commit(change(operation(f"{n:02}"))) for n in range(20)))
        taken = await asyncio.gather(
            *(store.claim(Queue.OPERATIONS, name, limit=8) for name in "xyz")
        )
        assert [claimed.id for claims in taken for claimed in claims] == [
            f"{n:02}" for n in range(20)
        ]
