"""What of a body is kept, and what is refused before anything of it is."""

import pytest

from tenure.app.operations.entry_change import encode_stored
from tenure.core.errors import Invalid, LimitExceeded
from tenure.core.limits import DEPTH_MAX, RESULT_BYTES_MAX


def nested_lists(depth):
    value: object = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("body", "text", "value"),
    [
        (None, "null", None),
        ({"a": (1, 2.5), "ü": True}, '{"a":[1,2.5],"ü":true}', {"a": [1, 2.5], "ü": True}),
        ("[" * 200, f'"{"[" * 200}"', "[" * 200),
    ],
)
def test_a_body_is_read_back_as_its_text_says(body, text, value):
    assert encode_stored(body) == (text, value)


def test_what_is_read_back_is_nobody_elses():
    body = {"names": ["a"]}
    _, value = encode_stored(body)
    body["names"].append("b")
    assert value == {"names": ["a"]}


@pytest.mark.parametrize("beside", ["", "y" * 500])
def test_a_body_is_nested_as_deep_as_it_may_and_no_deeper(beside):
    body = [beside, nested_lists(DEPTH_MAX - 1)]
    assert encode_stored(body)[1] == body
    with pytest.raises(Invalid, match=f"nested more than {DEPTH_MAX} deep"):
        encode_stored([beside, nested_lists(DEPTH_MAX)])
    with pytest.raises(Invalid, match=f"nested more than {DEPTH_MAX} deep"):
        encode_stored(nested_lists(DEPTH_MAX + 1))


@pytest.mark.parametrize(
    "body",
    [object(), {1: "x"}, float("nan"), "\ud800", b"bytes", {"a": {1, 2}}, nested_lists(5_000)],
)
def test_what_is_no_plain_data_is_refused(body):
    with pytest.raises(Invalid, match="a result or payload"):
        encode_stored(body)


@pytest.mark.parametrize("letter", ["x", "ü", "€"])
def test_the_limit_is_one_of_bytes(letter):
    width = len(letter.encode())
    most = letter * ((RESULT_BYTES_MAX - 2) // width)
    assert encode_stored(most)[1] == most
    size = len(most.encode()) + 2 + width
    with pytest.raises(LimitExceeded, match=f"at most {RESULT_BYTES_MAX} bytes .* has {size}"):
        encode_stored(most + letter)
