"""The audit log: a line for everything that was asked; what is done to it afterwards is seen."""

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.operations import commands as operations
from tenure.app.safety import epochs
from tenure.app.tenancy import audit, quotas, tokens
from tenure.core.audit import BrokenChain, link
from tenure.core.records import AuditRecord, OperationRecord
from tenure.core.roles import Role
from tenure.testing.operators import by
from tests.unit.support.agent_planes import STRANGER, agent_test


async def busy(harness):
    """A log of a few lines."""
    await harness.create_ready()
    await harness.run_verb("suspend")
    await quotas.set_quota(harness.plane, CALLER, most=5)
    await tokens.create_token(harness.plane, CALLER, principal="p", role=Role.VIEWER)
    await agents.create_agent(harness.plane, STRANGER, spec_of("theirs"))
    deleted = await harness.run_verb("delete")
    assert deleted.agent
    verdict = await audit.verify(harness.plane)
    assert (verdict.entries, verdict.broken) == (6, None)
    return verdict.head


@agent_test
async def test_every_verb_has_a_line_with_who_asked_and_of_what(harness):
    await busy(harness)
    lines = await audit.list_audit(harness.plane, CALLER)
    assert [line.action for line in lines] == [
        "agent.create",
        "agent.suspend",
        "quota.set",
        "token.create",
        "agent.delete",
    ]
    assert {line.principal for line in lines} == {"someone"}
    assert lines[0].body["name"] == "alpha"
    assert lines[0].body["operation"] == (await harness.rows(OperationRecord))[0].id


@agent_test
async def test_a_tenant_sees_its_own_lines_alone(harness):
    await busy(harness)
    lines = await audit.list_audit(harness.plane, STRANGER)
    assert [line.action for line in lines] == ["agent.create"]
    first = await audit.list_audit(harness.plane, CALLER, limit=2)
    later = await audit.list_audit(harness.plane, CALLER, after=4)
    assert [line.position for line in first] == [1, 2]
    assert [line.position for line in later] == [6]


@agent_test
async def test_an_operators_word_has_a_line_too(harness):
    created = await agents.create_agent(harness.plane, CALLER, spec_of("alpha"))
    await operations.cancel(harness.plane, by("an operator"), created.id)
    (line,) = [row for row in await harness.rows(AuditRecord) if row.action == "operation.cancel"]
    assert (line.principal, line.target) == ("an operator", created.id)


def _edit(rows):
    rows[3,]["principal"] = "nobody"
    return 3


def _delete(rows):
    del rows[4,]
    return 4


def _reorder(rows):
    rows[2,], rows[3,] = {**rows[3,], "position": 2}, {**rows[2,], "position": 3}
    return 2


def _truncate(rows):
    del rows[5,], rows[6,]
    return 5


def _empty(rows):
    rows.clear()
    return 1


@pytest.mark.parametrize("harm", [_edit, _delete, _reorder, _truncate, _empty])
def test_whatever_is_done_to_the_log_is_found_and_named(harm):
    @agent_test
    async def play(harness):
        head = await busy(harness)
        bad = harm(harness.disk.tables.rows["audit"])
        verdict = await audit.verify(harness.plane, head=head)
        assert verdict.broken is not None
        assert verdict.broken.position == bad
        assert verdict.broken.why

    play()


@agent_test
async def test_a_cut_at_the_end_shows_only_against_a_head_from_before(harness):
    head = await busy(harness)
    _truncate(harness.disk.tables.rows["audit"])
    assert (await audit.verify(harness.plane)).broken is None
    assert (await audit.verify(harness.plane, head=head)).broken is not None


@agent_test
async def test_a_cut_of_what_this_plane_has_seen_shows_and_goes_on_showing(harness):
    await busy(harness)
    await epochs.record_audit_head(harness.plane)
    assert (await audit.verify(harness.plane)).broken is None
    rows = harness.disk.tables.rows["audit"]
    _truncate(rows)
    cut = BrokenChain(
        5, "the head that this plane saw last is missing in the log", head_missing=True
    )
    assert (await audit.verify(harness.plane)).broken == cut
    previous = rows[4,]["hash"]
    for number in range(5, 9):  # the log grows again, past what was seen
        *values, _ = {**rows[4,], "position": number}.values()
        previous = link(previous, values)
        rows[number,] = {**rows[4,], "position": number, "hash": previous}
    await epochs.record_audit_head(harness.plane)
    assert (await audit.verify(harness.plane)).broken == cut._replace(position=9)


@agent_test
async def test_a_log_that_was_written_anew_lacks_the_head(harness):
    head = await busy(harness)
    rows = harness.disk.tables.rows["audit"]
    rows[2,]["principal"] = "nobody"
    previous = ""
    for row in rows.values():
        *values, _ = row.values()
        previous = row["hash"] = link(previous, values)
    assert (await audit.verify(harness.plane)).broken is None
    assert (await audit.verify(harness.plane, head=head)).broken is not None


@agent_test
async def test_a_head_stays_good_while_the_log_grows(harness):
    head = await busy(harness)
    await harness.create_ready("beta")
    verdict = await audit.verify(harness.plane, head=head)
    assert verdict.broken is None
    assert verdict.head != head


@agent_test
async def test_a_log_of_many_pages_is_walked_to_its_end(harness, monkeypatch):
    await busy(harness)
    monkeypatch.setattr(audit, "VERIFY_ROWS", 2)
    verdict = await audit.verify(harness.plane)
    assert (verdict.entries, verdict.broken) == (6, None)
    harness.disk.tables.rows["audit"][5,]["body"] = "{}"
    hashes = [row.hash for row in await harness.rows(AuditRecord)]
    for size in (1, 2, 3, 10):
        monkeypatch.setattr(audit, "VERIFY_ROWS", size)
        entries, head, broken = await audit.verify(harness.plane)
        assert (entries, head, broken and broken.position) == (4, hashes[3], 5)
