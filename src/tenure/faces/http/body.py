"""Bodies: one strict reading, then one conversion; what does not fit is named.

Refused are equal keys, text that is no UTF-8 or holds half a surrogate pair or a NUL, NaN and its
kin, integers over 64 bits, nesting over 64 and bodies over 1 MiB, whatever a header promised.
Reading is quick where nothing is odd; only what was refused is read a second time, to name the
field.
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
"""How much of a body that is too large is read and thrown away, so that its sender hears the answer
instead of a broken connection.
"""
INTEGER_MIN, INTEGER_MAX = -(1 << 63), (1 << 64) - 1
INTEGER_CHARACTERS_MAX = 20
EXACT_MAX = float(1 << 53)
"""Up to here every integer has a float of its own."""
ODD_ESCAPE = re.compile(r"\\u(?:[dD][89a-fA-F]|0000)")
"""How half a surrogate pair, or NUL, stands in a body that can be read at all."""
AT = re.compile(r" - at (?:`key` in )?`\$?\.?([^`]*)`$")
UNKNOWN = re.compile(r"unknown field `(.*?)`")
MISSING = re.compile(r"missing required field `(.*?)`")
FIELD_CHARACTERS_MAX = 200

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
T = TypeVar("T")


class ClientDisconnected(Exception):
    """Whoever asked has gone."""


class _Odd(ValueError):
    """Something here is refused; a second reading says what and where."""


class _Wrong(NamedTuple):
    """In the second reading: a number that cannot be kept."""

    text: str


class _Pairs(NamedTuple):
    """In the second reading: an object with all its keys."""

    pairs: list[tuple[str, object]]


async def read(
    receive: Receive,
    headers: dict[bytes, bytes],
    *,
    seconds: float,
    bytes_max: int = BODY_BYTES_MAX,
) -> bytes:
    """The whole body, if it is small enough and comes in time; also when it comes in pieces."""
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, headers, bytes_max)
    except TimeoutError:
        raise ProblemError("request_timeout", f"a body has {seconds:g} s to come") from None


async def _read(receive: Receive, headers: dict[bytes, bytes], bytes_max: int) -> bytes:
    promised = headers.get(b"content-length", b"0")
    if not promised.isdigit() or len(promised) > INTEGER_CHARACTERS_MAX:
        raise ProblemError("invalid_header", "a content length is a number", "Content-Length")
    too_large = int(promised) > bytes_max
    parts: list[bytes] = []
    size = 0
    more = int(promised) <= UNREAD_BYTES_MAX
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
        raise ProblemError("body_too_large", f"a body has at most {bytes_max} bytes")
    return b"".join(parts) if len(parts) > 1 else parts[0]


def refuse_other_media(headers: dict[bytes, bytes], media: str = "application/json") -> None:
    """Only this media type, in UTF-8, is read."""
    kind, _, rest = headers.get(b"content-type", b"").decode("latin-1").partition(";")
    charset = rest.replace(" ", "").replace('"', "").lower()
    if kind.strip().lower() != media or charset not in {"", "charset=utf-8"}:
        raise ProblemError("unsupported_media_type", f"send Content-Type: {media}", "Content-Type")


def parse(body: bytes, *, depth_max: int = DEPTH_MAX) -> object:
    """The body as plain data."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        detail = f"byte {error.start} is no UTF-8"
        raise ProblemError("not_utf8", detail) from None
    try:
        tree = _strict(text)
    except RecursionError:
        raise ProblemError("too_deep", f"nested more than {depth_max} deep") from None
    except _Odd:
        _explain(text, depth_max)
        raise
    except ValueError as error:
        raise ProblemError("malformed_json", str(error)[:FIELD_CHARACTERS_MAX]) from None
    if text.count("[") + text.count("{") > depth_max or ODD_ESCAPE.search(text):
        _explain(text, depth_max)
    return tree


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Odd
    return made


def _integer(text: str) -> int:
    if len(text) > INTEGER_CHARACTERS_MAX or not INTEGER_MIN <= int(text) <= INTEGER_MAX:
        raise _Odd
    return int(text)


def _float(text: str) -> float:
    """The number; as JSON Schema has it, `1.0` is an integer."""
    value = float(text)
    if not isfinite(value):
        raise _Odd
    return int(value) if value.is_integer() and abs(value) <= EXACT_MAX else value


def _no_constant(_: str) -> object:
    raise _Odd


_strict = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_integer, parse_float=_float, parse_constant=_no_constant
).decode


def _or_wrong(parse_number: Callable[[str], object], text: str) -> object:
    try:
        return parse_number(text)
    except _Odd:
        return _Wrong(text)


_lenient = json.JSONDecoder(
    object_pairs_hook=_Pairs,
    parse_int=partial(_or_wrong, _integer),
    parse_float=partial(_or_wrong, _float),
    parse_constant=_Wrong,
).decode


def _explain(text: str, depth_max: int) -> None:
    """Refuse the first odd thing with its place; return if there is none."""
    try:
        tree = _lenient(text)
    except RecursionError:
        raise ProblemError("too_deep", f"nested more than {depth_max} deep") from None
    except ValueError as error:
        raise ProblemError("malformed_json", str(error)[:FIELD_CHARACTERS_MAX]) from None
    left: list[tuple[str, int, object]] = [("", 0, tree)]
    while left:
        place, depth, value = left.pop()
        place = place[:FIELD_CHARACTERS_MAX]  # it is written out again for all that is in there
        match value:
            case _Wrong(written):
                detail = f"{written[:40]} is not a number that can be kept"
                raise ProblemError("number_out_of_range", detail, _field(place))
            case str() if not _whole(value):
                detail = "text holds half of a surrogate pair"
                raise ProblemError("lone_surrogate", detail, _field(place))
            case str():
                refuse_nul(value, "invalid_field", place)
            case _Pairs() | list() if depth >= depth_max:
                raise ProblemError("too_deep", f"nested more than {depth_max} deep", _field(place))
            case _Pairs(pairs):
                _refuse_odd_keys(place, pairs)
                inner = [(f"{place}.{key}" if place else key, v) for key, v in pairs]
                left += [(name, depth + 1, v) for name, v in reversed(inner)]
            case list():
                numbered = [(f"{place}[{n}]", depth + 1, v) for n, v in enumerate(value)]
                left += reversed(numbered)
            case _:
                pass


def _refuse_odd_keys(place: str, pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if not _whole(key):
            detail = "a key holds half of a surrogate pair"
            raise ProblemError("lone_surrogate", detail, _field(place))
        refuse_nul(key, "invalid_field", place)
        if key in seen:
            name = _field(f"{place}.{key}" if place else key)
            raise ProblemError("duplicate_key", f"the key {key[:80]!r} is given twice", name)
        seen.add(key)


def refuse_nul(text: str, code: str, place: str) -> None:
    """Nobody means it, and not every store can keep it or look for it."""
    if "\0" in text:
        raise ProblemError(code, "text holds a NUL character", _field(place))


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _field(place: str) -> str:
    return place[:FIELD_CHARACTERS_MAX].encode("utf-8", "replace").decode()


def convert(tree: object, into: type[T]) -> T:
    """Plain data as the Struct that the route declares; what does not fit is named."""
    try:
        return msgspec.convert(tree, into, strict=True)
    except msgspec.ValidationError as error:
        raise misfit(error, into) from None


def misfit(error: msgspec.ValidationError, into: type) -> ProblemError:
    """The refusal that names the field; of an unknown one also the nearest that is known."""
    text = str(error)
    found = AT.search(text)
    place = found[1] if found else ""
    if named := UNKNOWN.search(text):
        field = f"{place}.{named[1]}" if place else named[1]
        detail = f"there is no field {named[1][:80]!r}; {_hint(named[1], place, into)}"
        return ProblemError("unknown_field", detail, _field(field))
    said = in_words(text.removesuffix(found[0]) if found else text)
    if named := MISSING.search(text):
        field = f"{place}.{named[1]}" if place else named[1]
        return ProblemError("missing_field", f"{field} is missing", _field(field))
    form = _form(place, into)
    if isinstance(form, inspect.LiteralType):
        said += f"; say {' or '.join(map(str, form.values))}"
    return ProblemError("invalid_field", f"{place or 'the body'}: {said}"[:500], _field(place))


def _form(place: str, into: type) -> inspect.Type | None:
    """What is declared there."""
    form: inspect.Type | None = inspect.type_info(into)
    for name in re.findall(r"\w+|\[[^][]*\]", place):
        form = _inner(form, name)
    return form


def _hint(key: str, place: str, into: type) -> str:
    form = _form(place, into)
    known = [field.encode_name for field in form.fields] if _is_struct(form) else []
    near = get_close_matches(key[:FIELD_CHARACTERS_MAX], known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    return f"known are {', '.join(sorted(known))}" if known else "none is expected"


def _is_struct(form: "inspect.Type | None") -> TypeGuard[inspect.StructType]:
    return isinstance(form, inspect.StructType)


def _inner(form: "inspect.Type | None", name: str) -> "inspect.Type | None":
    """The form of what stands at this place of a form."""
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
