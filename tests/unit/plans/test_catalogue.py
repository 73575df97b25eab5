"""The catalogue: plans by name and version, and plans as operations have kept them."""

import pytest

from tenure.core.errors import Conflict, Defect, Invalid, NotFound, PlanUnknown
from tenure.core.plan import Plan
from tenure.plans.catalogue import Catalogue
from tenure.ports.subject import PLAIN_SUBJECT
from tests.unit.support.saga_world import step

ONE = Plan("move", stages=[step("a")])
TWO = Plan("move", stages=[step("a"), step("b")], version=2)
TEN = Plan("move", stages=[step("a"), step("c")], version=10)


def test_the_newest_version_is_the_greatest_number_whatever_the_order():
    assert Catalogue([TEN, TWO, ONE]).newest("move") is TEN


def test_an_unknown_plan_is_refused_with_the_names_there_are():
    with pytest.raises(NotFound, match="there is no plan 'mvoe'; known are: move"):
        Catalogue([ONE]).newest("mvoe")
    with pytest.raises(NotFound, match="known are: none"):
        Catalogue().newest("move")


def test_another_plan_under_the_same_name_and_version_is_a_conflict():
    catalogue = Catalogue([ONE])
    with pytest.raises(Conflict, match="move@1 is registered already") as refused:
        catalogue.register(Plan("move", stages=[step("z")]))
    assert (refused.value.code, refused.value.holder) == ("plan_exists", ONE.digest)
    assert catalogue.newest("move") is ONE


def test_the_same_plan_may_be_registered_twice():
    again = Plan("move", stages=[step("a")])
    catalogue = Catalogue([ONE, again])
    assert list(catalogue) == [again]


def test_plans_are_listed_by_name():
    other = Plan("alter", stages=[step("a")])
    catalogue = Catalogue([ONE, TWO, other])
    assert catalogue.names() == ["alter", "move"]
    assert set(catalogue) == {ONE, TWO, other}


def test_a_plan_is_found_by_its_digest_and_restored_once():
    catalogue = Catalogue([TWO])
    assert catalogue.find(TWO.digest) is TWO
    assert catalogue.restore(TWO.body(), TWO.digest) is TWO
    older = Plan("move", stages=[step("a")], version=2)
    assert catalogue.find(older.digest) is None
    restored = catalogue.restore(older.body(), older.digest)
    assert restored == older
    assert catalogue.find(older.digest) is restored


def test_what_a_kept_plan_lacks_here_is_listed_by_name():
    catalogue = Catalogue([ONE])
    gone = Plan("move", stages=[step("a"), [step("x"), step("y")]])
    assert catalogue.missing(ONE.body()) == []
    assert catalogue.missing(gone.body()) == ["move@1/x", "move@1/y"]
    assert catalogue.missing(TWO.body()) == ["move@2/a", "move@2/b"]
    with pytest.raises(PlanUnknown, match="move@1/x") as unknown:
        catalogue.restore(gone.body(), gone.digest)
    assert unknown.value.plan == gone.digest


def test_a_plan_of_which_a_newer_release_says_more_than_is_known_here_is_unknown():
    newer = ONE.body().replace('"limits":{', '"limits":{"patience_seconds":1.0,')
    assert newer != ONE.body()
    with pytest.raises(PlanUnknown, match="in a form that is unknown here"):
        Catalogue([ONE]).restore(newer, "another")
    with pytest.raises(PlanUnknown, match="in a form that is unknown here"):
        Catalogue([ONE]).restore_to_show(newer)


def test_a_plan_that_nobody_knows_any_more_is_shown_and_not_performed():
    catalogue = Catalogue()
    shown = catalogue.restore_to_show(TWO.body())
    assert (shown.body(), shown.digest) == (TWO.body(), TWO.digest)
    assert catalogue.find(TWO.digest) is None
    with pytest.raises(Defect, match="an operation that has ended is not performed"):
        shown.steps["a"].do(None).send(None)  # type: ignore[attr-defined]


def test_a_plan_keeps_its_subject_from_version_to_version():
    catalogue = Catalogue([ONE])
    other = Plan(ONE.name, stages=ONE.stages, version=3, subject="agent")
    with pytest.raises(Conflict, match="all of its versions"):
        catalogue.register(other)


def test_a_subject_that_nobody_registered_is_refused_and_an_unknown_plan_has_a_plain_one():
    catalogue = Catalogue([Plan("odd", stages=ONE.stages, subject="endpoint")])
    with pytest.raises(Invalid, match="endpoint"):
        catalogue.subject_of("odd")
    assert catalogue.subject_of("nobody knows it") is PLAIN_SUBJECT


def test_the_subject_is_no_part_of_what_is_stored():
    named, plain = (Plan("odd", stages=ONE.stages, subject=one) for one in ("agent", ""))
    assert named.digest == plain.digest
