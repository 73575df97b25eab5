"""The step that most plans are made of: a resource at a provider."""

import pytest

from tenure.core.endings import Absent, Done
from tenure.core.errors import Rejected
from tenure.core.ids import resource_key
from tenure.core.limits import StepLimits
from tenure.core.plan import Plan, StepKind
from tenure.plans.steps import provided
from tenure.ports.provider import Call, Observation, Presence

KEY = resource_key("plane", tenant="t", agent="a", generation=1, slot="runtime", name="main")


class Shelf:
    """A provider that answers at once and remembers what it was asked."""

    def __init__(self, observation=None):
        self.asked = []
        self.observation = observation

    async def ensure(self, key, spec):
        self.asked.append(("ensure", key, spec))
        return {"port": 1}

    async def inspect(self, key):
        self.asked.append(("inspect", key))
        return self.observation

    async def remove(self, key):
        self.asked.append(("remove", key))


def run_function(function, call):
    """How a call ends that waits for nothing: no event loop is needed."""
    with pytest.raises(StopIteration) as end:
        function(call).send(None)
    return end.value.value


def call_of(shelf):
    said = {"size": 3}
    return Call(KEY, input=said, results={}, signals={}, providers={"runtime": shelf})


def test_do_ensures_what_the_input_says_unless_the_plan_says_otherwise():
    shelf = Shelf()
    assert run_function(provided("main", "runtime").do, call_of(shelf)) == Done({"port": 1})
    keyed = provided("main", "runtime", spec=lambda call: {"name": call.key.name})
    run_function(keyed.do, call_of(shelf))
    assert shelf.asked == [("ensure", KEY, {"size": 3}), ("ensure", KEY, {"name": "main"})]


def test_undo_removes_by_key():
    shelf = Shelf()
    assert run_function(provided("main", "runtime").undo, call_of(shelf)) == Done()
    assert shelf.asked == [("remove", KEY)]


class Refusing(Shelf):
    async def remove(self, key):
        raise Rejected("no")


def test_an_undo_that_is_refused_for_what_is_foreign_is_done_and_leaves_it_alone():
    undo = provided("main", "runtime").undo
    assert run_function(undo, call_of(Refusing(Observation(Presence.FOREIGN)))) == Done()
    with pytest.raises(Rejected):
        run_function(undo, call_of(Refusing(Observation(Presence.READY))))


@pytest.mark.parametrize("presence", [Presence.READY, Presence.STARTING])
def test_what_is_there_is_done_with_its_reference(presence):
    shelf = Shelf(Observation(presence, {"port": 2}))
    assert run_function(provided("main", "runtime").inspect, call_of(shelf)) == Done({"port": 2})


@pytest.mark.parametrize("presence", [Presence.ABSENT, Presence.BROKEN, Presence.FOREIGN])
def test_what_is_absent_broken_or_another_ones_is_not_adopted(presence):
    shelf = Shelf(Observation(presence, {"port": 2}, owner="them"))
    assert run_function(provided("main", "runtime").inspect, call_of(shelf)) == Absent()


def test_a_provided_step_fits_into_a_plan_as_any_kind():
    limits = StepLimits(call_seconds=2.0)
    plan = Plan(
        "p",
        stages=[
            provided("a", "identity"),
            provided("b", "runtime", needs=("a",), limits=limits),
            provided("c", "endpoint", kind=StepKind.PIVOT),
        ],
    )
    assert [one.slot for one in plan.steps.values()] == ["identity", "runtime", "endpoint"]
    assert plan.steps["b"].limits == limits
    assert plan.steps["b"].needs == ("a",)
    assert not plan.steps["c"].has_undo
