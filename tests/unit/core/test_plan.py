"""Plans: nonsense is refused by a sentence that names the step; what is kept is stable."""

import json
from typing import Any

import pytest
from hypothesis import given, settings

from tenure.core.errors import Invalid
from tenure.core.limits import STEPS_MAX, StepLimits
from tenure.core.plan import (
    OutcomeCheck,
    Plan,
    Step,
    StepKind,
    missing_from,
    nobody_knows,
    nothing,
    plan_from_body,
    repeat,
)
from tests.unit.support.saga_world import call, plans, step

PIVOT, RETRIABLE = StepKind.PIVOT, StepKind.RETRIABLE


def a_step(name="a", **fields):
    return Step(**{"name": name, "do": call, "undo": call, "inspect": call, **fields})


def with_limits(**fields):
    return [a_step("slow", limits=StepLimits(**fields))]


def len_of(call):
    return len(call.input)


NONSENSE = {
    "duplicate name": ([step("a"), step("b"), step("a")], "two steps are called a"),
    "duplicate name in a stage": ([[step("a"), step("a")]], "two steps are called a"),
    "plain do": ([a_step(do=len_of)], "step a: its do is no async function; write it with `async"),
    "plain undo": ([a_step(undo=len_of)], "step a: its undo is no async function"),
    "plain inspect": ([a_step(inspect=len_of)], "step a: its inspect is no async function"),
    "no undo": ([a_step(undo=None)], "step a declares no undo; give it one, or say undo=nothing"),
    "an undo that never runs": (
        [a_step("p", kind=PIVOT)],
        "step p is pivot and declares an undo that would never run",
    ),
    "another undo that never runs": (
        [step("p", kind=PIVOT), a_step("r", kind=RETRIABLE)],
        "step r is retriable and declares",
    ),
    "no inspect": ([a_step(inspect=None)], "step a does not say how to learn what became of"),
    "no function to ask": (
        [a_step(inspect=OutcomeCheck.INSPECT)],
        "step a does not say how to learn",
    ),
    "pivot before a sibling": (
        [[step("p", kind=PIVOT), step("s")]],
        "step p is a pivot beside s in one stage",
    ),
    "pivot after a sibling": (
        [[step("s"), step("p", kind=PIVOT)]],
        "step p is a pivot beside s in one stage",
    ),
    "second pivot": (
        [step("p", kind=PIVOT), step("q", kind=PIVOT)],
        "step q is a second pivot after p",
    ),
    "compensatable after the pivot": (
        [step("p", kind=PIVOT), step("late")],
        "step late is compensatable after the pivot p",
    ),
    "retriable before the pivot": (
        [step("r", kind=RETRIABLE), step("p", kind=PIVOT)],
        "step r is retriable before any pivot",
    ),
    "retriable without a pivot": (
        [step("a"), step("r", kind=RETRIABLE)],
        "step r is retriable before any pivot",
    ),
    "unknown need": ([a_step(needs=("z",))], "step a needs z, which is no step of this plan"),
    "need of a later step": (
        [a_step(needs=("b",)), step("b")],
        "step a needs b, which does not come before it",
    ),
    "need of a sibling": (
        [[a_step(needs=("b",)), step("b")]],
        "step a needs b, which does not come before it",
    ),
    "cycle of one": ([a_step(needs=("a",))], "step a needs a, which needs a: a cycle"),
    "cycle of three": (
        [a_step("a", needs=("b",)), a_step("b", needs=("c",)), a_step("c", needs=("a", "b"))],
        "step a needs b, which needs a: a cycle",
    ),
    "no steps": ([], "it has no steps"),
    "an empty stage": ([step("a"), []], "a stage without any"),
    "too many steps": ([step(f"s{n}") for n in range(STEPS_MAX + 1)], "65 steps; at most 64"),
    "no name": ([step("")], "step '': a name is"),
    "a capital": ([step("Abc")], "step 'Abc': a name is"),
    "a digit first": ([step("1a")], "step '1a': a name is"),
    "a slash": ([step("a/b")], "step 'a/b': a name is"),
    "a line end": ([step("a\n")], "a name is"),
    "a long name": ([step("x" * 64)], "a name is"),
    "a bad slot": ([a_step(slot="Run time")], "step a: slot 'Run time': a name is"),
    "a long slot": ([a_step(slot="x" * 64)], "step a: slot"),
    "no time to call": (with_limits(call_seconds=0), "step slow: call_seconds must be a time"),
    "a negative time": (with_limits(visible_seconds=-1), "step slow: visible_seconds must be"),
    "no number": (with_limits(undo_seconds=float("nan")), "step slow: undo_seconds must be"),
    "no end": (with_limits(deadline_seconds=float("inf")), "step slow: deadline_seconds must be"),
}


@pytest.mark.parametrize(("stages", "sentence"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_by_a_sentence_that_names_it(stages, sentence):
    with pytest.raises(Invalid) as refused:
        Plan("trial", stages=stages)
    assert str(refused.value).startswith("plan trial: ")
    assert sentence in str(refused.value)


@pytest.mark.parametrize("name", ["", "Trial", "a-b", "x" * 64])
def test_a_plan_needs_a_plain_name(name):
    with pytest.raises(Invalid, match=f"plan '{name}': a name is"):
        Plan(name, stages=[step("a")])


def test_versions_count_from_one():
    with pytest.raises(Invalid, match="plan trial: versions count from 1, not 0"):
        Plan("trial", stages=[step("a")], version=0)


def test_needs_may_cross_stages_and_share_their_sources():
    plan = Plan(
        "diamond",
        stages=[
            step("a"),
            [a_step("b", needs=("a",)), a_step("c", needs=("a",))],
            a_step("d", needs=("b", "c", "a")),
            a_step("e", needs=("d",)),
        ],
    )
    assert plan.parallel
    assert plan.stage_of == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 3}
    assert [set(names) for names in plan.stage_names] == [{"a"}, {"b", "c"}, {"d"}, {"e"}]
    assert list(plan.steps) == ["a", "b", "c", "d", "e"]


def test_a_name_of_63_characters_and_a_plan_of_64_steps_are_the_most():
    assert not Plan("x" * 63, stages=[step(f"{'y' * 61}{n}") for n in range(10, 74)]).parallel


def test_the_way_back_ends_at_the_pivot():
    assert Plan("t", stages=[step("a"), step("p", kind=PIVOT)]).pivot_stage == 1
    assert Plan("t", stages=[step("a"), step("b")]).pivot_stage == 2
    assert Plan("t", stages=[step("r", kind=RETRIABLE)]).pivot_stage == 0


def test_what_can_be_undone_and_asked_is_read_off_the_step():
    assert a_step().has_undo
    assert not a_step(undo=nothing).has_undo
    assert not step("p", kind=PIVOT).has_undo
    asked = [a_step(inspect=how).outcome_check for how in (call, repeat, nobody_knows)]
    assert asked == [OutcomeCheck.INSPECT, OutcomeCheck.REPEAT, OutcomeCheck.NOBODY_KNOWS]


# --- what an operation keeps of its plan ----------------------------------------------------------

GOLDEN = Plan(
    "golden",
    version=3,
    stages=[
        a_step("identity", slot="identity"),
        [a_step("access", needs=("identity",)), a_step("look", undo=nothing, inspect=repeat)],
        Step("exposed", do=call, inspect=nobody_knows, kind=PIVOT),
        Step("told", do=call, inspect=repeat, kind=RETRIABLE, limits=StepLimits(call_seconds=5)),
    ],
)


def test_the_digest_of_a_plan_does_not_change_between_releases():
    """Open operations are found again by it: a change here needs a migration, not a new value."""
    assert GOLDEN.digest == "0d4f307e18becc38adf7939d08987917"


def test_the_body_is_plain_json_in_one_order():
    kept = json.loads(GOLDEN.body())
    assert json.dumps(kept, sort_keys=True, separators=(",", ":")) == GOLDEN.body()
    assert [[one["name"] for one in stage] for stage in kept["stages"]] == [
        ["identity"],
        ["access", "look"],
        ["exposed"],
        ["told"],
    ]
    assert [one["undo"] for stage in kept["stages"] for one in stage] == [
        "call",
        "call",
        "nothing",
        "",
        "",
    ]


@settings(max_examples=30)
@given(plans)
def test_a_kept_plan_comes_back_the_same(plan):
    again = plan_from_body(plan.body(), lambda name, version, one: plan.steps[one])
    assert again == plan
    assert again.digest == plan.digest
    assert missing_from(plan.body(), lambda name, version, one: plan.steps[one]) == []


def test_the_digest_does_not_depend_on_functions_or_on_how_a_number_is_written():
    async def other(_):
        pass

    one = Plan("p", stages=[a_step(limits=StepLimits(call_seconds=5))])
    two = Plan("p", stages=[a_step(do=other, undo=other, limits=StepLimits(call_seconds=5.0))])
    assert one.digest == two.digest


@pytest.mark.parametrize(
    "change",
    [
        {"name": "b"},
        {"undo": nothing},
        {"inspect": repeat},
        {"slot": "other"},
        {"limits": StepLimits(call_seconds=1)},
        {"kind": PIVOT, "undo": None},
    ],
)
def test_the_digest_tells_plans_apart(change):
    assert Plan("p", stages=[a_step(**change)]).digest != Plan("p", stages=[a_step()]).digest


def test_what_an_operation_kept_wins_over_what_the_step_says_now():
    now = a_step(slot="new", limits=StepLimits(call_seconds=1))
    kept = Plan("p", stages=[a_step(undo=nothing, inspect=repeat, slot="old")])
    again = plan_from_body(kept.body(), lambda *_: now)
    assert again == kept


@pytest.mark.parametrize("functions", [None, a_step(undo=nothing), a_step(inspect=repeat)])
def test_a_kept_step_whose_functions_are_gone_is_missing_not_skipped(functions):
    kept = Plan("p", stages=[a_step()], version=2)
    assert missing_from(kept.body(), lambda *_: functions) == ["p@2/a"]
    with pytest.raises(Invalid, match="nobody here knows how to perform p@2/a"):
        plan_from_body(kept.body(), lambda *_: functions)


def test_a_word_may_be_given_as_plain_text():
    words: Any = {"undo": "nothing", "inspect": "repeat", "kind": "compensatable"}
    step = Step("a", do=_async, **words)
    assert (step.undo, step.inspect, step.kind) == (nothing, repeat, StepKind.COMPENSATABLE)
    assert not step.has_undo
    pivot: Any = {"kind": "pivot"}
    with pytest.raises(Invalid, match=r"a is a second pivot|stands alone"):
        Plan("p", stages=[[Step(name, _async, None, repeat, **pivot) for name in "ba"]])


@pytest.mark.parametrize(
    ("step", "word"),
    [
        ({"kind": "pviot"}, "there is no kind 'pviot'"),
        ({"do": None}, "its do must be"),
        ({"undo": "foo"}, "its undo must be"),
        ({"inspect": "ask me"}, "its inspect must be"),
        ({"limits": 3}, "its limits must be"),
    ],
)
def test_a_step_of_the_wrong_make_is_refused_by_name(step, word):
    given: Any = {"do": _async, "undo": nothing, "inspect": repeat, **step}
    with pytest.raises(Invalid, match=f"step odd.*{word}"):
        Plan("p", stages=(Step("odd", **given),))


def test_stages_that_are_none_are_refused():
    one = Step("a", do=_async, undo=nothing, inspect=repeat)
    odd: Any
    for odd, word in ((one, "stages=.step,."), (("ab",), "a stage is a Step")):
        with pytest.raises(Invalid, match=word):
            Plan("p", stages=odd)
    odd = "v1"
    with pytest.raises(Invalid, match="whole number"):
        Plan("p", stages=(one,), version=odd)


async def _async(_):
    """Any async function."""
