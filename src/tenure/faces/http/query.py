"""Query parameters are parsed as strictly as bodies.

Each parameter is declared as a field of the route's Struct.  A parameter that is unknown, occurs
twice or has the wrong type is refused by its name.  A parameter whose field is a tuple may occur
several times.
"""

import re
from functools import cache
from math import isfinite
from typing import TypeVar, cast
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from tenure.faces.http.body import refuse_nul, validation_problem
from tenure.faces.http.problems import ProblemError

FIELDS_MAX = 64
INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\Z")
FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,24})?(?:[eE][+-]?[0-9]{1,3})?\Z")
TRUTH = {"true": True, "false": False}
T = TypeVar("T", bound=msgspec.Struct)


@cache
def _forms(into: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    info = cast(inspect.StructType, inspect.type_info(into))
    return {field.encode_name: _bare(field.type) for field in info.fields}


def _bare(form: inspect.Type) -> inspect.Type:
    """The type without its metadata."""
    return form.type if isinstance(form, inspect.Metadata) else form


def read(raw: bytes, into: type[T]) -> T:
    """Parse the query string into the Struct that the route declares."""
    forms = _forms(into)
    tree: dict[str, object] = {}
    for name, text in _pairs(raw):
        form = forms.get(name)
        if form is None:
            known = ", ".join(sorted(forms)) or "none"
            detail = f"there is no parameter {name[:80]!r}; known parameters: {known}"
            raise ProblemError("unknown_parameter", detail, name)
        if isinstance(form, inspect.VarTupleType):
            cast("list[object]", tree.setdefault(name, [])).append(
                _value(name, text, _bare(form.item_type))
            )
        elif name in tree:
            raise ProblemError("duplicate_parameter", f"{name} occurs twice", name)
        else:
            tree[name] = _value(name, text, form)
    try:
        return msgspec.convert(tree, into, strict=True)
    except msgspec.ValidationError as error:
        refusal = validation_problem(error, into)
        field = refusal.field.partition("[")[0]
        raise ProblemError("invalid_parameter", refusal.detail, field) from None


def refuse_any(raw: bytes) -> None:
    """Refuse every parameter, for routes that take none."""
    for name, _ in _pairs(raw):
        raise ProblemError("unknown_parameter", "this route takes no query parameters", name)


def _pairs(raw: bytes) -> list[tuple[str, str]]:
    if not raw:
        return []
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
        )
    except UnicodeDecodeError:
        detail = "the query string is not percent-encoded UTF-8"
        raise ProblemError("not_utf8", detail) from None
    except ValueError:
        detail = f"a query string may have at most {FIELDS_MAX} parameters"
        raise ProblemError("invalid_parameter", detail) from None
    for name, text in pairs:
        refuse_nul(name, "invalid_parameter", "")
        refuse_nul(text, "invalid_parameter", name)
    return pairs


def _value(name: str, text: str, form: inspect.Type) -> object:
    match form:
        case inspect.BoolType():
            if text in TRUTH:
                return TRUTH[text]
            raise ProblemError("invalid_parameter", f"{name} must be true or false", name)
        case inspect.IntType():
            if INTEGER.match(text):
                return int(text)
            raise ProblemError("invalid_parameter", f"{name} must be an integer", name)
        case inspect.FloatType():
            if FLOAT.match(text) and isfinite(float(text)):
                return float(text)
            raise ProblemError("invalid_parameter", f"{name} must be a number", name)
        case _:
            return text
