"""The part of the store's contract about its hash-chained table, the audit log."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from tenure.core.audit import first_broken
from tenure.core.errors import Defect
from tenure.core.records import AgentNameRecord, AgentRecord, AuditRecord, OperationRecord
from tenure.ports.store import ChainHash, Is, Next, Put, Store
from tenure.testing.contracts.store_rows import Names, operation, scenario

NORTH = {"tenant": "north"}


def entry(action: str) -> Put:
    """A new line of the audit log."""
    return Put(
        "audit",
        (Next("audit"),),
        {"tenant": "north", "principal": "p", "action": action, "target": "t", "at": 2.5,
         "body": "{}", "hash": ChainHash("audit")},
    )  # fmt: skip


def values(rows: Sequence[AuditRecord]) -> list[list[Any]]:
    """Rows as the chain reads them."""
    return [list(row) for row in rows]


class NoRecord(NamedTuple):
    """A tuple that is the record of no table."""

    id: str


class ChainPromises:
    """A part of `StoreContract`, which has its fixtures."""

    @scenario
    async def test_every_line_of_the_audit_log_vouches_for_those_before_it(
        self, store: Store, change: Names
    ) -> None:
        assert await store.commit(change(entry("one"), entry("two"))) is None
        await asyncio.gather(*(store.commit(change(entry(f"n{n}"))) for n in range(5)))
        rows = await store.list_rows(AuditRecord, NORTH, limit=10)
        assert [row.position for row in rows] == list(range(1, 8))
        assert first_broken(values(rows)) is None
        assert len({row.hash for row in rows}) == 7

    @scenario
    async def test_a_refused_change_leaves_no_gap_in_the_audit_log(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(operation("a"), entry("one")))
        same = change(entry("lost"), operation("a"))  # a clash after the line was given its number
        guarded = change(entry("lost"), guards=(Is("operation", ("b",), {"token": 1}),))
        fine = change(entry("two"))
        answers = await asyncio.gather(
            store.commit(same), store.commit(guarded), store.commit(fine)
        )
        assert [answer is None for answer in answers] == [False, False, True]
        rows = await store.list_rows(AuditRecord, NORTH, limit=10)
        assert [row.action for row in rows] == ["one", "two"]
        assert first_broken(values(rows)) is None

    @scenario
    async def test_a_tenant_reads_its_own_lines_of_the_audit_log(
        self, store: Store, change: Names
    ) -> None:
        await store.commit(change(entry("one"), entry("two"), entry("three")))
        assert list(await store.list_rows(AuditRecord, {"tenant": "south"})) == []
        rows = await store.list_rows(AuditRecord, NORTH, after=(1,), limit=1)
        assert [row.action for row in rows] == ["two"]
        whole = await store.list_rows(AuditRecord, {}, after=(2,))
        assert [row.action for row in whole] == ["three"]

    @scenario
    async def test_counts_what_is_open_and_what_has_a_name_by_state(
        self, store: Store, change: Names
    ) -> None:
        rows = [
            Put("agent", (uid,), {"tenant": tenant, "generation": 1, "state": state})
            for uid, tenant, state in [
                ("1", "north", "READY"), ("2", "north", "READY"), ("3", "north", "DELETED"),
                ("4", "south", "READY"),
            ]
        ]  # fmt: skip
        names = [
            Put("agent_name", (tenant, f"a{uid}"), {"agent": uid})
            for uid, tenant in [("1", "north"), ("2", "north"), ("4", "south")]
        ]
        others = [
            operation("a", state="STUCK"), operation("b", state="RUNNING"),
            operation("c", state="SUCCEEDED", ended_at=3.0), operation("d", tenant="south"),
        ]  # fmt: skip
        await store.commit(change(*rows, *names, *others))
        assert dict(await store.count_states("north")) == {
            ("operation", "STUCK"): 1, ("operation", "RUNNING"): 1, ("agent", "READY"): 2,
        }  # fmt: skip
        assert dict(await store.count_states("nobody")) == {}

    @scenario
    async def test_lists_and_counts_the_rows_that_say_something(
        self, store: Store, change: Names
    ) -> None:
        names = [
            Put("agent_name", (tenant, name), {"agent": agent})
            for tenant, name, agent in [
                ("n", "c", "1"), ("n", "a", "2"), ("s", "b", "1"), ("n", "b", "1"),
            ]
        ]  # fmt: skip
        await store.commit(change(*names, operation("a"), operation("b", ended_at=4.0)))
        page = await store.list_rows(AgentNameRecord, {"tenant": "n"}, after=("n", "a"), limit=1)
        assert list(page) == [AgentNameRecord("n", "b", "1")]
        ones = await store.list_rows(AgentNameRecord, {"agent": "1"})
        assert [(row.tenant, row.name) for row in ones] == [
            ("n", "b"), ("n", "c"), ("s", "b"),
        ]  # fmt: skip
        assert await store.count_rows(AgentNameRecord, {"tenant": "n", "agent": "1"}) == 2
        open_ones = await store.list_rows(OperationRecord, {"ended_at": None})
        assert [row.id for row in open_ones] == ["a"]
        with pytest.raises(Defect):
            await store.list_rows(NoRecord, {})
        with pytest.raises(Defect):
            await store.count_rows(AgentRecord, {"size": 1})
