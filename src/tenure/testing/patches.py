"""Replaces attributes of modules and classes while a `with` block runs."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Off = Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(owner: Any, **values: Any) -> Iterator[None]:
    """Replace attributes of a module or class while the block runs."""
    before = {name: owner.__dict__[name] for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
