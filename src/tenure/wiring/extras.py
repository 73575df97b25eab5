"""Imports optional dependencies, with an error that says how to install a missing one."""

from collections.abc import Iterator
from contextlib import contextmanager

from tenure.core.errors import Invalid


@contextmanager
def extra(name: str) -> Iterator[None]:
    """In this block a missing module raises Invalid, which says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = (
            f"{error.name} is not installed: in a checkout make .venv/scale.installed brings it,"
            f" elsewhere the extra [{name}] of the package"
        )
        raise Invalid(message) from None
