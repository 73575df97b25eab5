"""Optional dependencies."""

from collections.abc import Iterator
from contextlib import contextmanager

from tenure.core.errors import Invalid


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Turn a missing module into Invalid with the way to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = (
            f"{error.name} is not installed: in a checkout make .venv/scale.installed brings it,"
            f" elsewhere the extra [{name}] of the package"
        )
        raise Invalid(message) from None
