"""Request bodies: a strict JSON parse, then a conversion to the route's Struct.

Refused are duplicate keys, text that is not UTF-8 or contains half a surrogate pair or a NUL, NaN
and infinities, integers over 64 bits, nesting over 64 and bodies over 1 MiB, whatever
Content-Length says.  A valid body is parsed once.  A refused one is parsed a second time to find
the field.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from difflib import get_close_matches
from functools import partial
from math import isfinite
from typing import Any, NamedTuple, TypeGuard, TypeVar

import msgspec
from msgspec import inspect

from tenure.app.agents.spec import in_words
from tenure.core.limits import DEPTH_MAX
from tenure.faces.http.problems import ProblemError

BODY_BYTES_MAX = 1 << 20
UNREAD_BYTES_MAX = 16 << 20
"""How much of a body that is too large is read and dropped, so that its sender gets the response
instead of a broken connection.
"""
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 64) - 1
INTEGER_CHARACTERS_MAX = 20
EXACT_MAX = float(1 << 53)
"""Up to this value every integer is exactly representable as a float."""
ODD_ESCAPE = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
"""The escape of half a surrogate pair or of NUL, in a body that is otherwise valid JSON."""
FIELD_PATH = re.compile(r" - at (?:`key` in )?`\$?\.?([^`]*)`$")
UNKNOWN_FIELD = re.compile(r"unknown field `(.*?)`")
MISSING_FIELD = re.compile(r"missing required field `(.*?)`")
FIELD_CHARACTERS_MAX = 200

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
T = TypeVar("T")


class ClientDisconnected(Exception):
    """The client closed its connection."""


class _RefusedValue(ValueError):
    """The body contains a refused value; the second parse finds which and where."""


class _RefusedNumber(NamedTuple):
    """In the second parse: a number that cannot be stored."""

    text: str


class _AllPairs(NamedTuple):
    """In the second parse: an object with all its keys, duplicates included."""

    pairs: list[tuple[str, object]]


async def read(
    receive: Receive,
    headers: dict[bytes, bytes],
    *,
    seconds: float,
    bytes_max: int = BODY_BYTES_MAX,
) -> bytes:
    """Read the whole body; refuse one that is too large or does not arrive in time."""
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, headers, bytes_max)
    except TimeoutError:
        detail = f"the body did not arrive within {seconds:g} s"
        raise ProblemError("request_timeout", detail) from None


async def _read(receive: Receive, headers: dict[bytes, bytes], bytes_max: int) -> bytes:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > INTEGER_CHARACTERS_MAX:
        raise ProblemError("invalid_header", "Content-Length must be a number", "Content-Length")
    too_large = int(length) > bytes_max
    parts: list[bytes] = []
    size = 0
    more = int(length) <= UNREAD_BYTES_MAX
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        part = message.get("body", b"")
        size += len(part)
        too_large = too_large or size > bytes_max
        if not too_large:
            parts.append(part)
        more = message.get("more_body", False) and size <= UNREAD_BYTES_MAX
    if too_large:
        raise ProblemError("body_too_large", f"a body may have at most {bytes_max} bytes")
    return b"".join(parts) if len(parts) > 1 else parts[0]


def refuse_other_media(headers: dict[bytes, bytes], media: str = "application/json") -> None:
    """Refuse a body that is not of this media type, in UTF-8."""
    kind, _, rest = headers.get(b"content-type", b"").decode("latin-1").partition(";")
    charset = rest.replace(" ", "").replace('"', "").lower()
    if kind.strip().lower() != media or charset not in {"", "charset=utf-8"}:
        raise ProblemError("unsupported_media_type", f"send Content-Type: {media}", "Content-Type")


def parse(body: bytes, *, depth_max: int = DEPTH_MAX) -> object:
    """Parse the body into plain data."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte {error.start} is not valid UTF-8"
        raise ProblemError("not_utf8", detail) from None
    try:
        tree = _decode_strictly(text)
    except RecursionError:
        raise ProblemError("too_deep", f"nested more than {depth_max} deep") from None
    except _RefusedValue:
        _refuse_with_field(text, depth_max)
        raise
    except ValueError as error:
        raise ProblemError("malformed_json", str(error)[:FIELD_CHARACTERS_MAX]) from None
    if text.count("[") + text.count("{") > depth_max or ODD_ESCAPE.search(text):
        _refuse_with_field(text, depth_max)
    return tree


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _RefusedValue
    return result


def _integer(text: str) -> int:
    if len(text) > INTEGER_CHARACTERS_MAX or not INTEGER_MIN <= int(text) <= INTEGER_MAX:
        raise _RefusedValue
    return int(text)


def _float(text: str) -> float:
    """The number; `1.0` counts as an integer, as in JSON Schema."""
    value = float(text)
    if not isfinite(value):
        raise _RefusedValue
    return int(value) if value.is_integer() and abs(value) <= EXACT_MAX else value


def _no_constant(_: str) -> object:
    raise _RefusedValue


_decode_strictly = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_int=_integer,
    parse_float=_float,
    parse_constant=_no_constant,
).decode


def _or_refused(parse_number: Callable[[str], object], text: str) -> object:
    try:
        return parse_number(text)
    except _RefusedValue:
        return _RefusedNumber(text)


_decode_leniently = json.JSONDecoder(
    object_pairs_hook=_AllPairs,
    parse_int=partial(_or_refused, _integer),
    parse_float=partial(_or_refused, _float),
    parse_constant=_RefusedNumber,
).decode


def _refuse_with_field(text: str, depth_max: int) -> None:
    """Refuse the first invalid value and name its field; return if there is none."""
    try:
        tree = _decode_leniently(text)
    except RecursionError:
        raise ProblemError("too_deep", f"nested more than {depth_max} deep") from None
    except ValueError as error:
        raise ProblemError("malformed_json", str(error)[:FIELD_CHARACTERS_MAX]) from None
    stack: list[tuple[str, int, object]] = [("", 0, tree)]
    while stack:
        place, depth, value = stack.pop()
        place = place[:FIELD_CHARACTERS_MAX]  # each nested value repeats it in its own path
        match value:
            case _RefusedNumber(digits):
                detail = f"{digits[:40]} is not a number that can be stored"
                raise ProblemError("number_out_of_range", detail, _field(place))
            case str() if not _is_encodable(value):
                detail = "text contains half of a surrogate pair"
                raise ProblemError("lone_surrogate", detail, _field(place))
            case str():
                refuse_nul(value, "invalid_field", place)
            case _AllPairs() | list() if depth >= depth_max:
                raise ProblemError("too_deep", f"nested more than {depth_max} deep", _field(place))
            case _AllPairs(pairs):
                _refuse_odd_keys(place, pairs)
                inner = [(f"{place}.{key}" if place else key, v) for key, v in pairs]
                stack += [(name, depth + 1, v) for name, v in reversed(inner)]
            case list():
                numbered = [(f"{place}[{n}]", depth + 1, v) for n, v in enumerate(value)]
                stack += reversed(numbered)
            case _:
                pass


def _refuse_odd_keys(place: str, pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if not _is_encodable(key):
            detail = "a key contains half of a surrogate pair"
            raise ProblemError("lone_surrogate", detail, _field(place))
        refuse_nul(key, "invalid_field", place)
        if key in seen:
            name = _field(f"{place}.{key}" if place else key)
            raise ProblemError("duplicate_key", f"the key {key[:80]!r} occurs twice", name)
        seen.add(key)


def refuse_nul(text: str, code: str, place: str) -> None:
    """Refuse text with a NUL character: not every store can store it or search for it."""
    if "\0" in text:
        raise ProblemError(code, "text contains a NUL character", _field(place))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _field(place: str) -> str:
    return place[:FIELD_CHARACTERS_MAX].encode("utf-8", "replace").decode()


def convert(tree: object, into: type[T]) -> T:
    """Convert plain data to the Struct that the route declares, or refuse it by field."""
    try:
        return msgspec.convert(tree, into, strict=True)
    except msgspec.ValidationError as error:
        raise validation_problem(error, into) from None


def validation_problem(error: msgspec.ValidationError, into: type) -> ProblemError:
    """The problem that names the field; for an unknown field it suggests the nearest known one."""
    text = str(error)
    path = FIELD_PATH.search(text)
    place = path[1] if path else ""
    if unknown := UNKNOWN_FIELD.search(text):
        field = f"{place}.{unknown[1]}" if place else unknown[1]
        detail = f"there is no field {unknown[1][:80]!r}; {_hint(unknown[1], place, into)}"
        return ProblemError("unknown_field", detail, _field(field))
    reason = in_words(text.removesuffix(path[0]) if path else text)
    if missing := MISSING_FIELD.search(text):
        field = f"{place}.{missing[1]}" if place else missing[1]
        return ProblemError("missing_field", f"{field} is missing", _field(field))
    form = _declared_type(place, into)
    if isinstance(form, inspect.LiteralType):
        reason += f"; use {' or '.join(map(str, form.values))}"
    return ProblemError("invalid_field", f"{place or 'the body'}: {reason}"[:500], _field(place))


def _declared_type(place: str, into: type) -> inspect.Type | None:
    """The type that is declared for the field at this place."""
    form: inspect.Type | None = inspect.type_info(into)
    for name in re.findall(r"\w+|\[[^][]*\]", place):
        form = _member_type(form, name)
    return form


def _hint(key: str, place: str, into: type) -> str:
    form = _declared_type(place, into)
    known = [field.encode_name for field in form.fields] if _is_struct(form) else []
    near = get_close_matches(key[:FIELD_CHARACTERS_MAX], known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"known fields: {', '.join(sorted(known))}" if known else "no fields are expected"


def _is_struct(form: "inspect.Type | None") -> TypeGuard[inspect.StructType]:
    return isinstance(form, inspect.StructType)


def _member_type(form: "inspect.Type | None", name: str) -> "inspect.Type | None":
    """The type of one member of a type: of a field, an item or a value."""
    match form:
        case inspect.StructType(fields=fields):
            inner = {field.encode_name: field.type for field in fields}.get(name)
        case inspect.VarTupleType(item_type=inner) | inspect.ListType(item_type=inner):
            pass
        case inspect.DictType(value_type=inner):
            pass
        case _:
            inner = None
    if isinstance(inner, inspect.Metadata):
        inner = inner.type
    if isinstance(inner, inspect.UnionType):
        structs = [one for one in inner.types if _is_struct(one)]
        return structs[0] if structs else None
    return inner
