"""What a guard means, for every store that compares in Python: one rule, one place."""

from tenure.ports.store import AtLeast, Below, Said, Value


def meets(said: Said, found: Value) -> bool:
    """Whether a column that holds `found` says what the guard wants; None is below nothing."""
    if isinstance(said, Below):
        return found is not None and found < said.value  # type: ignore[operator]
    if isinstance(said, AtLeast):
        return found is not None and found >= said.value  # type: ignore[operator]
    return found == said
