"""Goal: the intent rules allow no bad end, and none of them is there for nothing.

Method: a small model of workers, caller, network and providers is explored state by state, first
under all rules, then without each of them.  Bad ends are judged in the modelled world.  So that a
zero means something, the actions that make it hard (late delivery, takeover, cancel, retry and the
faults) are counted too.
"""

import functools

import pytest

from proofs.operations import intent_model
from proofs.operations.intent_model import ALL_RULES, End, Result, Rule

pytestmark = pytest.mark.timeout(300)

# What happens without the rule, in one operation of "ap" with one fault: these kinds and no others.
BROKEN_WITHOUT = {
    Rule.TOMBSTONES: {End.ORPHAN},
    Rule.FENCE_TOKENS: {End.SPLIT},
    Rule.REVISION_GUARDS: {End.LOST, End.SPLIT, End.UNHEEDED},
    Rule.CANCEL_BEFORE_PIVOT: {End.SPLIT, End.UNHEEDED},
    Rule.UNCLAIMED_GUARD: {End.ORPHAN},
    Rule.UNDO_INTENDED: {End.ORPHAN},
    Rule.NEW_GENERATION: {End.BARRED},
    Rule.INSPECT_UNKNOWN: {End.HUNG},
    Rule.SOLE_REFUSAL: {End.SPLIT},
    Rule.SENT_ONCE: {End.SPLIT},
}


remembered = functools.cache(intent_model.explore)


def explore_model(
    rules: frozenset[Rule] = ALL_RULES, *, plan: str = "ap", faults: int = 1, operations: int = 1
) -> Result:
    return remembered(rules, plan=plan, faults=faults, operations=operations)


def without(rule: Rule) -> Result:
    """Only a new generation needs a second operation to show what it is for."""
    operations = 2 if rule is Rule.NEW_GENERATION else 1
    return explore_model(ALL_RULES - {rule}, operations=operations)


@pytest.mark.parametrize(
    ("plan", "faults", "operations", "states_min"),
    [
        pytest.param("ap", 2, 2, 70_000, marks=pytest.mark.slow),
        pytest.param("ap", 3, 1, 35_000, marks=pytest.mark.slow),
        ("abp", 1, 1, 20_000),
    ],
)
def test_under_all_rules_no_order_of_events_leads_to_a_bad_end(
    plan, faults, operations, states_min
):
    found = explore_model(plan=plan, faults=faults, operations=operations)
    assert found.ends == {}
    assert found.example == {}
    assert found.states > states_min


@pytest.mark.slow
def test_what_makes_the_promise_hard_did_happen():
    actions = explore_model(faults=2, operations=2).actions
    hard = {"late delivery", "takeover", "restart", "cancel", "cancelled", "retry", "inspect"}
    hard |= {"duplicate", "give up", "lose", "refuse", "fenced", "conflict"}
    assert {action: actions.get(action, 0) for action in hard if actions.get(action, 0) < 100} == {}


def test_siblings_meet_each_others_records():
    assert explore_model(plan="abp").actions["conflict"] > 1_000


@pytest.mark.parametrize("rule", Rule)
def test_without_the_rule_its_bad_end_is_found(rule):
    found = without(rule)
    assert set(found.ends) == BROKEN_WITHOUT[rule]
    for end in found.ends:
        assert found.example[end], f"no trace leads to {end}"
        assert len(set(found.example[end])) > 3


def test_the_rules_the_design_names_keep_away_every_kind_of_broken_world():
    named = (
        Rule.TOMBSTONES,
        Rule.FENCE_TOKENS,
        Rule.REVISION_GUARDS,
        Rule.CANCEL_BEFORE_PIVOT,
    )
    found = {end for rule in named for end in without(rule).ends}
    assert found >= {End.ORPHAN, End.LOST, End.SPLIT}
    assert all(without(rule).ends for rule in named)


def test_without_revision_guards_siblings_wait_for_each_other_forever():
    found = explore_model(ALL_RULES - {Rule.REVISION_GUARDS}, plan="abp", faults=0)
    assert End.HUNG in found.ends
    assert found.example[End.HUNG][-2:] == (
        "do a of #1 arrives: done; A decides a PRESENT",
        "do b of #1 arrives: done; A decides b PRESENT",
    )


@pytest.mark.parametrize(
    ("rule", "end", "text"),
    [
        (Rule.TOMBSTONES, End.ORPHAN, "do a of #1 arrives: done; nobody waits for it"),
        (Rule.FENCE_TOKENS, End.SPLIT, "B claims #1 with token 2, though its holder lives"),
        (Rule.REVISION_GUARDS, End.LOST, "A records p PRESENT, SUCCEEDED for #1"),
        (Rule.CANCEL_BEFORE_PIVOT, End.SPLIT, "the cancel of #1 is recorded"),
        (Rule.NEW_GENERATION, End.BARRED, "#1 is tried again"),
        (Rule.SOLE_REFUSAL, End.SPLIT, "inspected: absent; A calls do p of #1"),
    ],
)
def test_a_trace_tells_what_went_wrong(rule, end, text):
    assert text in without(rule).example[end]


@pytest.mark.parametrize(
    "rule", [Rule.FENCE_TOKENS, Rule.INSPECT_UNKNOWN, Rule.SOLE_REFUSAL, Rule.SENT_ONCE]
)
def test_rules_against_faults_are_not_needed_where_there_are_none(rule):
    assert explore_model(ALL_RULES - {rule}, faults=0, operations=2).ends == {}


def test_the_same_question_gets_the_same_answer():
    rules = ALL_RULES - {Rule.REVISION_GUARDS}
    assert intent_model.explore(rules, operations=1) == explore_model(rules)


@pytest.mark.slow
def test_the_table_has_a_row_for_each_rule(monkeypatch, capsys):
    monkeypatch.setattr(intent_model, "explore", remembered)
    intent_model.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [row.endswith("no bad end") for row in rows[:2]] == [True, True]
    assert not any(row.endswith("no bad end") for row in rows[2:])
    assert all(any(row.startswith(rule) for row in rows) for rule in Rule)
