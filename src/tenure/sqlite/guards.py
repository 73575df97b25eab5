"""Evaluates the condition of a guard, for every store that compares in Python."""

from tenure.ports.store import AtLeast, Below, Condition, Value


def meets(condition: Condition, found: Value) -> bool:
    """Whether the value `found` meets the condition; None meets no comparison."""
    if isinstance(condition, Below):
        return found is not None and found < condition.value  # type: ignore[operator]
    if isinstance(condition, AtLeast):
        return found is not None and found >= condition.value  # type: ignore[operator]
    return found == condition
