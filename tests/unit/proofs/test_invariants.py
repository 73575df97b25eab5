"""Every invariant can fail: each is fed a world or snapshot that break it and no other."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proofs.harness.cluster import Client, Cluster, command
from proofs.harness.snapshot import journal_only_grew, read_snapshot
from proofs.operations import invariants
from proofs.operations.invariants import Evidence, violations
from tenure.testing.fakes import Thing, World
from tenure.testing.faults import Fault, FaultPoint, Faults
from tenure.testing.loop import SeededLoop, run
from tenure.testing.plans import EFFECTS, PLANS, providers_of


def run_simulation(
    plan: str, script: dict[FaultPoint, Fault] | None = None, *, seconds: float = 30.0
) -> Evidence:
    """The evidence of one honest operation."""

    async def main(loop: SeededLoop) -> Evidence:
        world = World(loop)
        providers = providers_of(world, Faults(script))
        cluster = Cluster(loop, plans=[PLANS[plan]], world=world, providers=providers)
        supervisor = loop.create_task(cluster.supervise("plane"))
        client = Client(cluster)
        await client.accept(command(plan, "once"))
        await asyncio.sleep(seconds)
        supervisor.cancel()
        await world.quiet()
        snapshot = await read_snapshot(cluster.disk.observer())
        plans = {PLANS[plan].digest: PLANS[plan]}
        return Evidence(snapshot, world, plans, client.acknowledged_ids, EFFECTS)

    return run(0, main)


REFUSED = {FaultPoint("credentials", "ensure", 1): Fault.REFUSED}
LEFT = {**REFUSED, FaultPoint("access", "remove", 1): Fault.REFUSED}
UNKNOWN = {FaultPoint("meter", "ensure", 1): Fault.BROKE}


@pytest.fixture
def success() -> Evidence:
    return run_simulation("linear", seconds=1.0)


@pytest.fixture
def compensation() -> Evidence:
    return run_simulation("linear", REFUSED, seconds=1.0)


def only(evidence: Evidence) -> str:
    (name,) = evidence.snapshot.operations
    return name


def with_row(evidence: Evidence, **columns: Any) -> Evidence:
    """The same with other columns in the operation's row."""
    name = only(evidence)
    rows = {name: evidence.snapshot.operations[name]._replace(**columns)}
    return replace(evidence, snapshot=evidence.snapshot._replace(operations=rows))


def with_journal(evidence: Evidence, journal: list[Any]) -> Evidence:
    return replace(
        evidence, snapshot=evidence.snapshot._replace(journals={only(evidence): journal})
    )


def broken(evidence: Evidence) -> set[str]:
    """The names of the invariants that do not hold."""
    return {wrong.split(":")[0] for wrong in violations(evidence)}


@pytest.mark.parametrize(
    ("plan", "script"),
    [("linear", {}), ("linear", REFUSED), ("linear", LEFT), ("pivot", {}), ("unaskable", UNKNOWN)],
)
def test_an_honest_life_breaks_none(plan, script):
    assert violations(run_simulation(plan, script)) == []


def test_an_acknowledged_operation_that_is_missing_is_seen(success):
    evidence = replace(success, acknowledged_ids=[*success.acknowledged_ids, "lost"])
    assert broken(evidence) == {"acknowledged_are_kept"}


def test_an_operation_that_stands_still_is_seen(success):
    assert "every_operation_ended" in broken(with_row(success, state="RUNNING"))


def test_a_stuck_operation_that_names_too_little_is_seen():
    evidence = run_simulation("linear", LEFT)
    assert broken(evidence) == set()
    intents = [row._replace(state="BURNED") for row in evidence.snapshot.intents[only(evidence)]]
    evidence = replace(
        evidence, snapshot=evidence.snapshot._replace(intents={only(evidence): intents})
    )
    assert "every_operation_ended" in broken(evidence)


def test_a_resource_that_is_missing_or_too_many_is_seen(success):
    world = success.world
    key = next(iter(world.things))
    thing = world.things.pop(key)
    assert broken(success) == {"succeeded_holds_its_resources"}
    world.things[key] = thing
    other = thing.key._replace(text="another")
    world.things["access", "another"] = Thing("access", other, "plane", {}, 0.0, 0.0)
    assert broken(success) == {"succeeded_holds_its_resources"}


def test_an_orphan_is_seen(compensation):
    key = next(entry.key for entry in compensation.world.log if entry.effect == "made")
    compensation.world.things["identity", key.text] = Thing("identity", key, "plane", {}, 0.0, 0.0)
    assert broken(compensation) == {"compensated_left_nothing"}


def test_an_intent_that_was_not_burned_is_seen(compensation):
    intents = [
        row._replace(state="REMOVING") for row in compensation.snapshot.intents[only(compensation)]
    ]
    snapshot = compensation.snapshot._replace(intents={only(compensation): intents})
    assert "compensated_left_nothing" in broken(replace(compensation, snapshot=snapshot))


def test_undoing_the_oldest_first_is_seen(compensation):
    log = compensation.world.log
    removed = [entry for entry in log if entry.verb == "remove"]
    log[:] = [entry for entry in log if entry.verb != "remove"] + removed[::-1]
    assert broken(compensation) == {"undone_newest_first"}


def test_going_on_past_a_stuck_undo_is_allowed():
    evidence = run_simulation("linear", LEFT)
    assert [entry.provider for entry in evidence.world.log if entry.effect == "removed"] == [
        "runtime",
        "identity",
    ]
    assert broken(evidence) == set()


def test_a_pivot_that_was_turned_back_is_seen():
    evidence = run_simulation(
        "pivot", {FaultPoint("exposure", "ensure", 1): Fault.REFUSED}, seconds=1.0
    )
    assert broken(evidence) == set()
    (row,) = [row for row in evidence.snapshot.intents[only(evidence)] if row.slot == "exposure"]
    evidence.world.made["exposure", row.key] += 1
    assert broken(evidence) == {"pivot_is_never_turned_back"}


def test_a_resource_made_twice_is_seen(success):
    next(iter(success.world.things.values())).times = 2
    assert broken(success) == {"nothing_is_there_twice"}


def test_an_effect_that_ran_twice_is_seen():
    evidence = run_simulation("charge", seconds=1.0)
    evidence.world.made["ledger", "some key"] = 2
    assert broken(evidence) == {"charged_at_most_once"}


def test_an_effect_that_is_denied_is_seen():
    evidence = run_simulation("unaskable", UNKNOWN)
    journal = list(evidence.snapshot.journals[only(evidence)])
    for kind in ("undone", "refused"):
        said = [*journal[:-1], journal[-1]._replace(kind=kind, step="meter", body="{}")]
        assert "unknown_is_said" in broken(with_journal(evidence, said))
    silent = with_row(with_journal(evidence, journal[:-1]), state="COMPENSATED")
    assert "unknown_is_said" in broken(silent)


def test_an_effect_that_is_claimed_and_never_happened_is_seen():
    evidence = run_simulation("unaskable", seconds=1.0)
    evidence.world.made.clear()
    assert broken(evidence) == {"unknown_is_said"}


def test_an_event_too_few_too_many_or_of_another_kind_is_seen(success):
    events = list(success.snapshot.events)
    stranger = events[0]._replace(operation="another")
    renamed = events[0]._replace(type="operation.stuck")
    for wrong in (
        events[1:],
        [*events, events[-1]],
        events[::-1],
        [*events, stranger],
        [renamed, *events[1:]],
    ):
        snapshot = success.snapshot._replace(events=wrong)
        assert broken(replace(success, snapshot=snapshot)) == {"events_tell_the_journal"}


def test_a_hole_in_the_journal_is_seen(success):
    journal = list(success.snapshot.journals[only(success)])
    assert "journal_has_no_holes" in broken(with_journal(success, journal[:2] + journal[3:]))
    assert "journal_has_no_holes" in broken(with_journal(success, journal[1:]))


def test_a_row_that_says_something_else_than_the_journal_is_seen(success):
    assert broken(with_row(success, ended_at=None)) == {"rows_agree_with_the_journal"}
    assert "rows_agree_with_the_journal" in broken(with_row(success, state="COMPENSATED"))
    (row,) = success.snapshot.operations.values()
    locked = success.snapshot._replace(active={row.agent: only(success)})
    assert broken(replace(success, snapshot=locked)) == {"rows_agree_with_the_journal"}


def test_two_operations_on_one_agent_at_a_time_are_seen(success):
    log = success.world.log
    newer = log[0]._replace(key=log[0].key._replace(generation=2, text="newer"))
    log.insert(2, newer)
    assert broken(success) == {"one_operation_at_a_time"}


def test_a_rewritten_journal_is_seen(success):
    before = success.snapshot
    name = only(success)
    journal = list(before.journals[name])
    assert journal_only_grew(before, before) == []
    shorter = before._replace(journals={name: journal[:-1]})
    assert journal_only_grew(shorter, before) == []
    assert journal_only_grew(before, shorter) == [f"the journal of {name} was rewritten"]
    other = before._replace(journals={name: [*journal[:-1], journal[-1]._replace(at=0.0)]})
    assert journal_only_grew(before, other)
    assert journal_only_grew(before, before._replace(journals={}))


def test_every_invariant_has_a_test_here():
    text = Path(__file__).read_text(encoding="utf-8")
    assert [check for check in invariants.INVARIANTS if f'"{check.__name__}"' not in text] == []
