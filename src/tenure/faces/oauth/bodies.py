"""Reads what a client sends: forms and JSON, strictly, or says in one sentence what is odd.

The sentence never repeats what was sent: it may hold a token.
"""

import asyncio
import json
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import ClientDisconnect, Request

BODY_BYTES_MAX = 65_536
BODY_SECONDS = 30.0
FIELDS_MAX = 32
BEARER_CHARACTERS_MAX = 8_192
DEPTH_MAX = 16


class Odd(Exception):
    """The request cannot be read; `status` is what HTTP calls that."""

    def __init__(self, sentence: str, *, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


async def read_form(request: Request) -> dict[str, str]:
    """The form's fields, each there once; one without a value counts as not sent (RFC 6749)."""
    _refuse_query(request)
    body = await _read(request, "application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError:  # UnicodeDecodeError too
        raise Odd("The form cannot be read.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Odd("A field of the form is there twice.")
    return {name: value for name, value in fields.items() if value}


async def read_json(request: Request) -> dict[str, object]:
    """A JSON object in which nothing is said twice."""
    _refuse_query(request)
    body = await _read(request, "application/json")
    try:
        value = json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_constant)
        _refuse_depth(value, DEPTH_MAX)
        json.dumps(value, ensure_ascii=False).encode()  # a lone surrogate has no bytes
    except (ValueError, RecursionError):
        raise Odd("The body is not JSON that can be kept.") from None
    if not isinstance(value, dict):
        raise Odd("The body must be a JSON object.")
    return value


def read_bearer(request: Request) -> str | None:
    """The bearer token of the request; None if there is none."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    token = token.strip()
    if len(given) > 1 or scheme.lower() != "bearer" or not token or not token.isascii():
        raise Odd("The Authorization header must be one bearer token.", status=401)
    if len(token) > BEARER_CHARACTERS_MAX:
        raise Odd("The bearer token is too long.", status=401)
    return token


def _refuse_query(request: Request) -> None:
    """A query ends up in logs, so nothing is taken from it."""
    if request.url.query:
        raise Odd("Parameters belong in the body, not in the address.")


async def _read(request: Request, kind: str) -> bytes:
    given = request.headers.getlist("content-type")
    found, _, parameter = (given[0] if len(given) == 1 else "").partition(";")
    charset = parameter.strip().lower().replace('"', "")
    if found.strip().lower() != kind or charset not in {"", "charset=utf-8"}:
        raise Odd(f"The content type must be {kind}.", status=415)
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > BODY_BYTES_MAX:
                    raise Odd(f"The body is over {BODY_BYTES_MAX} bytes long.", status=413)
    except ClientDisconnect:
        raise Odd("The body did not arrive.") from None
    except TimeoutError:
        raise Odd("The body did not arrive in time.", status=408) from None
    return bytes(body)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is there twice")
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _refuse_depth(value: object, left: int) -> None:
    if left == 0:
        raise ValueError("nested too deep")
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            _refuse_depth(inner, left - 1)
