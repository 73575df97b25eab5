"""Operations that a Temporal worker keeps between two of their moves: for one, and not for long."""

from types import SimpleNamespace
from typing import Any

from tenure.adapters.engine.temporal import kept as kept_module
from tenure.adapters.engine.temporal.kept import KEPT_SECONDS, Kept
from tenure.testing.patches import patched


def live(name: str = "a", token: int = 1) -> Any:
    return SimpleNamespace(id=name, token=token)


class Time:
    """A clock that goes when it is told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_kept_is_taken_once():
    kept: Kept[Any] = Kept(Time())
    one = live()
    kept.keep(one, "t")
    assert kept.take("a", 1, "t") is one
    assert kept.take("a", 1, "t") is None


def test_another_token_or_ticket_takes_nothing_and_leaves_nothing():
    kept: Kept[Any] = Kept(Time())
    for token, ticket in ((2, "t"), (1, "u"), (1, "")):
        kept.keep(live(), "t")
        assert kept.take("a", token, ticket) is None
        assert len(kept) == 0


def test_of_one_operation_the_last_is_kept():
    kept: Kept[Any] = Kept(Time())
    last = live()
    kept.keep(live(), "t")
    kept.keep(last, "u")
    assert kept.take("a", 1, "u") is last


def test_what_has_grown_old_is_not_given_and_makes_room():
    time = Time()
    kept: Kept[Any] = Kept(time)
    kept.keep(live("a"), "t")
    kept.keep(live("b"), "t")
    time.now += KEPT_SECONDS + 0.1
    assert kept.take("a", 1, "t") is None
    kept.keep(live("c"), "t")
    assert len(kept) == 1


def test_there_are_only_so_many():
    kept: Kept[Any] = Kept(Time())
    with patched(kept_module, KEPT_MAX=2):
        for name in "abc":
            kept.keep(live(name), "t")
    assert len(kept) == 2
    assert kept.take("a", 1, "t") is None
    assert kept.take("c", 1, "t") is not None


def test_what_something_was_heard_of_is_read_anew():
    kept: Kept[Any] = Kept(Time())
    kept.keep(live(), "t")
    kept.forget("a")
    kept.forget("unknown")
    assert kept.take("a", 1, "t") is None
