"""The audit log: a line for everything that was asked; what is done to it afterwards is seen."""

import pytest

from proofs.agents.lifecycle import CALLER, spec_of
from tenure.app.agents import commands as agents
from tenure.app.agents import quotas
from tenure.app.operations import commands as operations
from tenure.app.safety import epochs
from tenure.app.tenancy import audit, tokens
from tenure.core.audit import BrokenChain, link
from tenure.core.roles import Role
from tenure.testing.operators import by
from tests.unit.support.agent_planes import STRANGER, alive


async def busy(lives):
    """A log of a few lines."""
    await lives.made()
    await lives.verb("suspend")
    await quotas.set_quota(lives.plane, CALLER, most=5)
    await tokens.create_token(lives.plane, CALLER, principal="p", role=Role.VIEWER)
    await agents.create_agent(lives.plane, STRANGER, spec_of("theirs"))
    deleted = await lives.verb("delete")
    assert deleted.agent
    verdict = await audit.verify(lives.plane)
    assert (verdict.entries, verdict.broken) == (6, None)
    return verdict.head


@alive
async def test_every_verb_has_a_line_with_who_asked_and_of_what(lives):
    await busy(lives)
    lines = await audit.list_audit(lives.plane, CALLER)
    assert [line.action for line in lines] == [
        "agent.create",
        "agent.suspend",
        "quota.set",
        "token.create",
        "agent.delete",
    ]
    assert {line.principal for line in lines} == {"someone"}
    assert lines[0].body["name"] == "alpha"
    assert lines[0].body["operation"] == (await lives.rows("operation"))[0]["id"]


@alive
async def test_a_tenant_sees_its_own_lines_alone(lives):
    await busy(lives)
    lines = await audit.list_audit(lives.plane, STRANGER)
    assert [line.action for line in lines] == ["agent.create"]
    first = await audit.list_audit(lives.plane, CALLER, limit=2)
    later = await audit.list_audit(lives.plane, CALLER, after=4)
    assert [line.position for line in first] == [1, 2]
    assert [line.position for line in later] == [6]


@alive
async def test_an_operators_word_has_a_line_too(lives):
    created = await agents.create_agent(lives.plane, CALLER, spec_of("alpha"))
    await operations.cancel(lives.plane, by("an operator"), created.id)
    (line,) = [row for row in await lives.rows("audit") if row["action"] == "operation.cancel"]
    assert (line["principal"], line["target"]) == ("an operator", created.id)


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
    @alive
    async def play(lives):
        head = await busy(lives)
        bad = harm(lives.disk.tables.rows["audit"])
        verdict = await audit.verify(lives.plane, head=head)
        assert verdict.broken is not None
        assert verdict.broken.position == bad
        assert verdict.broken.why

    play()


@alive
async def test_a_cut_at_the_end_shows_only_against_a_head_from_before(lives):
    head = await busy(lives)
    _truncate(lives.disk.tables.rows["audit"])
    assert (await audit.verify(lives.plane)).broken is None
    assert (await audit.verify(lives.plane, head=head)).broken is not None


@alive
async def test_a_cut_of_what_this_plane_has_seen_shows_and_goes_on_showing(lives):
    await busy(lives)
    await epochs.note(lives.plane)
    assert (await audit.verify(lives.plane)).broken is None
    rows = lives.disk.tables.rows["audit"]
    _truncate(rows)
    cut = BrokenChain(5, "the head that this plane has seen last is not there", head_missing=True)
    assert (await audit.verify(lives.plane)).broken == cut
    previous = rows[4,]["hash"]
    for number in range(5, 9):  # the log grows again, past what was seen
        *values, _ = {**rows[4,], "position": number}.values()
        previous = link(previous, values)
        rows[number,] = {**rows[4,], "position": number, "hash": previous}
    await epochs.note(lives.plane)
    assert (await audit.verify(lives.plane)).broken == cut._replace(position=9)


@alive
async def test_a_log_that_was_written_anew_lacks_the_head(lives):
    head = await busy(lives)
    rows = lives.disk.tables.rows["audit"]
    rows[2,]["principal"] = "nobody"
    previous = ""
    for row in rows.values():
        *values, _ = row.values()
        previous = row["hash"] = link(previous, values)
    assert (await audit.verify(lives.plane)).broken is None
    assert (await audit.verify(lives.plane, head=head)).broken is not None


@alive
async def test_a_head_stays_good_while_the_log_grows(lives):
    head = await busy(lives)
    await lives.made("beta")
    verdict = await audit.verify(lives.plane, head=head)
    assert verdict.broken is None
    assert verdict.head != head


@alive
async def test_a_log_of_many_pages_is_walked_to_its_end(lives, monkeypatch):
    await busy(lives)
    monkeypatch.setattr(audit, "VERIFY_ROWS", 2)
    verdict = await audit.verify(lives.plane)
    assert (verdict.entries, verdict.broken) == (6, None)
    lives.disk.tables.rows["audit"][5,]["body"] = "{}"
    hashes = [row["hash"] for row in await lives.rows("audit")]
    for size in (1, 2, 3, 10):
        monkeypatch.setattr(audit, "VERIFY_ROWS", size)
        entries, head, broken = await audit.verify(lives.plane)
        assert (entries, head, broken and broken.position) == (4, hashes[3], 5)
