"""What may be given to an operation and returned by a step."""

import pytest

from tenure.core.errors import Invalid
from tenure.core.limits import DEPTH_MAX
from tenure.core.plain import require_plain_data


def nested_lists(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [None, True, 7, -1.5, "text", [], {}, (1, 2), {"a": [{"b": None}]}, nested_lists(DEPTH_MAX)],
)
def test_plain_data_passes(value):
    require_plain_data(value, "the input")


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({1, 2}, "a set"),
        (b"bytes", "a bytes"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        ({1: "x"}, "keys are text"),
        ({"a": [{"b": object()}]}, "a object"),
        (nested_lists(DEPTH_MAX + 1), "deep"),
        (nested_lists(5_000), "deep"),
    ],
)
def test_what_is_odd_is_refused_and_named(value, word):
    with pytest.raises(Invalid, match=word):
        require_plain_data(value, "the input")
