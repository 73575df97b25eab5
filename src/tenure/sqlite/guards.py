"""What a guard means, for every store that compares in Python: one rule, one place."""

from tenure.ports.store import AtLeast, Below, Condition, Value


def meets(condition: Condition, found: Value) -> bool:
    """Whether a column that holds `found` meets the condition; None is below nothing."""
    if isinstance(condition, Below):
        return found is not None and found < condition.value  # type: ignore[operator]
    if isinstance(condition, AtLeast):
        return found is not None and found >= condition.value  # type: ignore[operator]
    return found == condition
