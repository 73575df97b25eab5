"""Attributes of modules and classes, replaced for as long as a `with` lasts."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

Off = Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(owner: Any, **values: Any) -> Iterator[None]:
    """Attributes of a module or class, replaced inside the `with`."""
    before = {name: owner.__dict__[name] for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)
