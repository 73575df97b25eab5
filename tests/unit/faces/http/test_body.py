"""Bodies and queries: what is refused, and by which name."""

import json
import tracemalloc
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from tenure.faces.http import body, query
from tenure.faces.http.problems import ProblemError


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: int = 0


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    by_key: dict[str, Inner] = {}


class ListQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=10, description="How many.")] = 5
    deep: bool = False
    seconds: float = 1.0
    label: tuple[str, ...] = ()
    after: str = ""
    since: Annotated[int | msgspec.UnsetType, Meta(description="From where on.")] = msgspec.UNSET


def refusal_of(data: bytes) -> tuple[str, str]:
    with pytest.raises(ProblemError) as found:
        body.convert(body.parse(data), Outer)
    return found.value.code, found.value.field


def test_a_good_body_is_read_as_it_stands():
    data = {"name": "é", "inner": {"size": 3}, "many": [{"size": 1}], "by_key": {"k": {}}}
    tree = body.parse(json.dumps(data).encode())
    assert tree == data
    assert body.convert(tree, Outer).inner == Inner(3)


def test_an_integer_may_be_written_with_a_point():
    assert body.convert(body.parse(b'{"size": 3.0}'), Inner) == Inner(3)
    assert body.parse(b"[1e300, 0.5, -0.0]") == [1e300, 0.5, 0]


def test_a_whole_surrogate_pair_is_text():
    assert body.parse(rb'{"name": "\ud83d\ude00"}') == {"name": "😀"}


def test_what_only_looks_like_an_escape_is_text():
    assert body.parse(rb'{"name": "\\u0000"}') == {"name": r"\u0000"}


@pytest.mark.parametrize(
    ("data", "code", "field"),
    [
        (b"", "malformed_json", ""),
        (b"{", "malformed_json", ""),
        (b"{} {}", "malformed_json", ""),
        (b'{"a": 01}', "malformed_json", ""),
        (b"\xff", "not_utf8", ""),
        (b"\xef\xbb\xbf{}", "malformed_json", ""),
        (b'{"name": "a", "name": "b"}', "duplicate_key", "name"),
        (b'{"name": "a", "inner": {"size": 1, "size": 1}}', "duplicate_key", "inner.size"),
        (b'{"many": [{}, {"size": 1, "size": 2}]}', "duplicate_key", "many[1].size"),
        (rb'{"name": "\ud800"}', "lone_surrogate", "name"),
        (rb'{"inner": {"\udfff": 1}}', "lone_surrogate", "inner"),
        (rb'{"many": ["ok", "\uDBFF!"]}', "lone_surrogate", "many[1]"),
        (rb'{"name": "a\u0000b"}', "invalid_field", "name"),
        (rb'{"inner": {"\u0000": 1}}', "invalid_field", "inner"),
        (rb'{"many": ["ok", "\u0000"]}', "invalid_field", "many[1]"),
        (b'{"name": "\0"}', "malformed_json", ""),
        (b'{"name": NaN}', "number_out_of_range", "name"),
        (b'{"many": [1, -Infinity]}', "number_out_of_range", "many[1]"),
        (b'{"inner": {"size": 1e999}}', "number_out_of_range", "inner.size"),
        (b'{"inner": {"size": 18446744073709551616}}', "number_out_of_range", "inner.size"),
        (b'{"inner": {"size": ' + b"9" * 100_000 + b"}}", "number_out_of_range", "inner.size"),
        (b"[" * 65 + b"]" * 65, "too_deep", "[0]" * 64),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "too_deep", ".".join("a" * 64)),
        (b"[" * 200_000, "too_deep", ""),
        (b'{"a":' * 100_000, "too_deep", ""),
        (b"[]", "invalid_field", ""),
        (b"{}", "missing_field", "name"),
        (b'{"name": 1}', "invalid_field", "name"),
        (b'{"name": "a", "more": 1}', "unknown_field", "more"),
        (b'{"name": "a", "inner": {"sise": 1}}', "unknown_field", "inner.sise"),
        (b'{"name": "a", "many": [{}, {"sise": 1}]}', "unknown_field", "many[1].sise"),
        (b'{"name": "a", "inner": {"size": 1.5}}', "invalid_field", "inner.size"),
        (b'{"name": "a", "inner": {"size": true}}', "invalid_field", "inner.size"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_name(data, code, field):
    assert refusal_of(data) == (code, field)


def test_nesting_up_to_the_bound_is_read():
    assert body.parse(b"[" * 64 + b"]" * 64)


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b'{"name": "a", "inner": {"sise": 1}}', "did you mean size?"),
        (b'{"name": "a", "many": [{"sise": 1}]}', "did you mean size?"),
        (b'{"name": "a", "by_key": {"k": {"sise": 1}}}', "did you mean size?"),
        (b'{"name": "a", "xyz": 1}', "known fields: by_key, inner, many, name"),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(data, hint):
    with pytest.raises(ProblemError) as found:
        body.convert(body.parse(data), Outer)
    assert found.value.detail.endswith(hint)


@pytest.mark.parametrize(
    "name",
    [
        " - at `" + "[" * 900_000,
        " - at `" * 130_000 + "\n",
        "\n - at `" * 110_000,
        "a" * 1_000_000,
    ],
)
def test_a_hostile_name_of_a_field_is_refused_with_bounded_work(name):
    with pytest.raises(ProblemError) as found:
        body.convert({name: 1, "name": "a"}, Outer)
    assert len(found.value.field) <= body.FIELD_CHARACTERS_MAX
    assert len(found.value.detail) <= 500


def test_a_long_name_of_a_long_list_is_not_written_out_for_each_of_it():
    data = b'{"%s": [%s1e999]}' % (b"a" * 10_000, b"1," * 20_000)
    tracemalloc.start()
    try:
        assert refusal_of(data) == ("number_out_of_range", "a" * body.FIELD_CHARACTERS_MAX)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_a_query_is_read_by_its_declared_forms():
    found = query.read(
        b"limit=3&deep=true&seconds=5e-1&label=a%3Db&label=c+d&after=%C3%A9", ListQuery
    )
    assert found == ListQuery(3, True, 0.5, ("a=b", "c d"), "é")
    assert query.read(b"", ListQuery) == ListQuery()
    assert query.read(b"since=7", ListQuery).since == 7


@pytest.mark.parametrize(
    ("raw", "code", "field"),
    [
        (b"limit=0", "invalid_parameter", "limit"),
        (b"limit=11", "invalid_parameter", "limit"),
        (b"limit=", "invalid_parameter", "limit"),
        (b"limit=1.0", "invalid_parameter", "limit"),
        (b"limit=+1", "invalid_parameter", "limit"),
        (b"limit=01", "invalid_parameter", "limit"),
        (b"limit=1%0A", "invalid_parameter", "limit"),
        (b"limit=" + b"9" * 5000, "invalid_parameter", "limit"),
        (b"deep=1", "invalid_parameter", "deep"),
        (b"deep=True", "invalid_parameter", "deep"),
        (b"seconds=nan", "invalid_parameter", "seconds"),
        (b"seconds=1e999", "invalid_parameter", "seconds"),
        (b"limit=1&limit=1", "duplicate_parameter", "limit"),
        (b"since=x", "invalid_parameter", "since"),
        (b"limits=1", "unknown_parameter", "limits"),
        (b"=1", "unknown_parameter", ""),
        (b"after=%ff", "not_utf8", ""),
        (b"after=a%00b", "invalid_parameter", "after"),
        (b"%00=1", "invalid_parameter", ""),
        (b"&".join(b"label=%d" % n for n in range(65)), "invalid_parameter", ""),
    ],
)
def test_a_query_that_does_not_fit_is_refused_by_its_name(raw, code, field):
    with pytest.raises(ProblemError) as found:
        query.read(raw, ListQuery)
    assert (found.value.code, found.value.field) == (code, field)
