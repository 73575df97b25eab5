"""Operations that a Temporal worker keeps between two of their moves: for one, and not for long."""

from types import SimpleNamespace
from typing import Any

from tenure.adapters.engine.temporal import sticky_cache
from tenure.adapters.engine.temporal.sticky_cache import ENTRY_TTL_SECONDS, StickyCache
from tenure.testing.patches import patched


def handle(name: str = "a", token: int = 1) -> Any:
    return SimpleNamespace(id=name, token=token)


class Time:
    """A clock that goes when it is told."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_kept_is_taken_once():
    left: StickyCache[Any] = StickyCache(Time())
    one = handle()
    left.put(one, "t")
    assert left.take("a", 1, "t") is one
    assert left.take("a", 1, "t") is None


def test_another_token_or_ticket_takes_nothing_and_leaves_nothing():
    left: StickyCache[Any] = StickyCache(Time())
    for token, cache_key in ((2, "t"), (1, "u"), (1, "")):
        left.put(handle(), "t")
        assert left.take("a", token, cache_key) is None
        assert len(left) == 0


def test_of_one_operation_the_last_is_kept():
    left: StickyCache[Any] = StickyCache(Time())
    last = handle()
    left.put(handle(), "t")
    left.put(last, "u")
    assert left.take("a", 1, "u") is last


def test_what_has_grown_old_is_not_given_and_makes_room():
    time = Time()
    left: StickyCache[Any] = StickyCache(time)
    left.put(handle("a"), "t")
    left.put(handle("b"), "t")
    time.now += ENTRY_TTL_SECONDS + 0.1
    assert left.take("a", 1, "t") is None
    left.put(handle("c"), "t")
    assert len(left) == 1


def test_there_are_only_so_many():
    left: StickyCache[Any] = StickyCache(Time())
    with patched(sticky_cache, ENTRIES_MAX=2):
        for name in "abc":
            left.put(handle(name), "t")
    assert len(left) == 2
    assert left.take("a", 1, "t") is None
    assert left.take("c", 1, "t") is not None


def test_what_something_was_heard_of_is_read_anew():
    left: StickyCache[Any] = StickyCache(Time())
    left.put(handle(), "t")
    left.discard("a")
    left.discard("unknown")
    assert left.take("a", 1, "t") is None
