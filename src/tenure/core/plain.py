"""Plain data: the values that inputs of operations and results of steps may have.

These are dicts with text keys, lists, text, finite numbers, booleans and None, up to a maximum
depth: the values that JSON returns unchanged.
"""

from math import isfinite

from tenure.core.errors import Invalid
from tenure.core.limits import DEPTH_MAX

SIMPLE = frozenset((str, int, bool, type(None)))


def require_plain_data(value: object, what: str, depth: int = DEPTH_MAX) -> None:
    """Invalid if this is not plain data; the message names the value that is not."""
    kind = type(value)
    if kind in SIMPLE or (isinstance(value, float) and isfinite(value)) or isinstance(value, str):
        return
    if depth == 0:
        message = f"{what} is nested more than {DEPTH_MAX} deep"
        raise Invalid(message)
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                message = f"{what} must be plain data: {key!r} is a key, and keys are text"
                raise Invalid(message)
            require_plain_data(inner, what, depth - 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            require_plain_data(inner, what, depth - 1)
    else:
        odd = repr(value) if isinstance(value, float) else f"a {kind.__name__}"
        message = f"{what} must be plain data, as JSON is: {odd} is not"
        raise Invalid(message)
