"""Operations that a Temporal worker keeps between two of their moves: for one, and not for long."""

from types import SimpleNamespace
from typing import Any

from tenure.adapters.engine.temporal import kept as kept_module
from tenure.adapters.engine.temporal.kept import KEPT_SECONDS, Kept
from tenure.testing.patches import patched


def live(name: str = "a", token: int = 1, revision: int = 3) -> Any:
    return SimpleNamespace(id=name, token=token, revision=revision)


class Time:
    """A clock that goes when it is told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_kept_is_taken_once():
    kept: Kept[Any] = Kept(Time())
    one = live()
    kept.keep(one)
    assert kept.take("a", 1, 3) is one
    assert kept.take("a", 1, 3) is None


def test_another_token_or_a_younger_revision_takes_nothing_and_leaves_nothing():
    kept: Kept[Any] = Kept(Time())
    for token, revision in ((2, 3), (1, 4)):
        kept.keep(live())
        assert kept.take("a", token, revision) is None
        assert len(kept) == 0
    newer = live(revision=5)
    kept.keep(newer)
    assert kept.take("a", 1, 3) is newer


def test_of_one_operation_the_newest_is_kept():
    kept: Kept[Any] = Kept(Time())
    newer = live(revision=4)
    kept.keep(newer)
    kept.keep(live(revision=3))
    assert kept.take("a", 1, 3) is newer


def test_what_has_grown_old_is_not_given_and_makes_room():
    time = Time()
    kept: Kept[Any] = Kept(time)
    kept.keep(live("a"))
    kept.keep(live("b"))
    time.now += KEPT_SECONDS + 0.1
    assert kept.take("a", 1, 3) is None
    kept.keep(live("c"))
    assert len(kept) == 1


def test_there_are_only_so_many():
    kept: Kept[Any] = Kept(Time())
    with patched(kept_module, KEPT_MAX=2):
        for name in "abc":
            kept.keep(live(name))
    assert len(kept) == 2
    assert kept.take("a", 1, 3) is None
    assert kept.take("c", 1, 3) is not None


def test_what_something_was_heard_of_is_read_anew():
    kept: Kept[Any] = Kept(Time())
    kept.keep(live())
    kept.forget("a")
    kept.forget("unknown")
    assert kept.take("a", 1, 3) is None
