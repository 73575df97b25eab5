"""Whole lives of operations: random plans, random trouble (`tests/unit/support/saga_world.py`)."""

from collections import Counter

from hypothesis import given, settings

from tenure.core.operation import EntryKind, OperationState
from tests.unit.support.saga_world import Life, plans, some_life, tapes


@settings(max_examples=120)
@given(plans, tapes)
def test_every_life_keeps_the_promises_and_ends(plan, tape):
    life = Life(plan, tape)
    life.run()
    life.check_end()


@settings(max_examples=30)
@given(plans)
def test_in_a_healthy_world_every_plan_succeeds_with_one_record_for_each_step(plan):
    life = Life(plan, b"")
    life.run()
    life.check_end()
    assert life.progress.end is OperationState.SUCCEEDED
    assert len(life.journal) == 1 + len(plan.steps)


def test_a_thousand_troubled_lives_keep_the_promises_and_meet_every_end_answer_and_record():
    ends: Counter[OperationState | None] = Counter()
    answers: Counter[str] = Counter()
    noted: Counter[EntryKind] = Counter()
    for seed in range(1_000):
        life = some_life(seed)
        try:
            life.run()
            life.check_end()
        except AssertionError as broken:
            broken.add_note(f"some_life({seed})")
            raise
        ends[life.progress.end] += 1
        answers.update(life.endings)
        noted.update(record.kind for record in life.journal)
    assert set(ends) == {
        OperationState.SUCCEEDED,
        OperationState.COMPENSATED,
        OperationState.ABANDONED,
    }
    assert len(answers) == 7
    assert set(noted) == set(EntryKind)
