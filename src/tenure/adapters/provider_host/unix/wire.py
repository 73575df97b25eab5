"""How the two sides speak: JSON behind its length, many questions under way at once.

    the house   [WELCOME, {…}]                                         once, to who has come
    a guest     [CALL, number, provider, method, arguments]
                [NEXT, number] · [DROP, number]                        more of a listing · end it
    the house   [VALUE | REFUSAL | PAGE | ERROR | LEFT | ENDED, number, …]    by the call's number
                [LEAVING]                                              ask no more, and hang up

JSON, and Python's own, because it carries whatever a caller may say, odd text too: a provider then
refuses it as it would have refused it here.  What JSON cannot say travels as a number that is none,
which no provider takes.
"""

import asyncio
import json
from collections.abc import Mapping
from enum import StrEnum
from math import nan
from typing import Any

from tenure.core.errors import Invalid, OutcomeUnknown, Rejected, TenureError, Unavailable

PROTOCOL = 2
MESSAGE_BYTES_MAX = 1 << 24
LENGTH_BYTES = 4
PAGE = 500
"""Items of a listing in one message."""
KINDS: Mapping[str, type[TenureError]] = {
    kind.code: kind for kind in (Unavailable, Rejected, OutcomeUnknown, Invalid)
}
"""The errors that travel.  Any other is a defect there, and here an unknown outcome."""


class Word(StrEnum):
    """The first of every message."""

    WELCOME = "welcome"
    CALL = "call"
    NEXT = "next"
    DROP = "drop"
    VALUE = "value"
    REFUSAL = "refusal"
    PAGE = "page"
    ERROR = "error"
    LEAVING = "leaving"
    ENDED = "ended"
    """The call was dropped, and has ended."""
    LEFT = "left"
    """The call was not begun: who serves here is leaving."""


class TooLong(Exception):
    """A message that is larger than any may be."""


def encode(message: list[Any]) -> bytes:
    """The message as it is sent; TooLong if it cannot be."""
    try:
        body = json.dumps(message, separators=(",", ":"), default=_said).encode("ascii")
    except (ValueError, RecursionError) as error:
        raise TooLong(f"a message that never ends ({error})") from None
    if len(body) > MESSAGE_BYTES_MAX:
        raise TooLong(f"a message of {len(body)} bytes; {MESSAGE_BYTES_MAX} is the most")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _said(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else nan


async def read(reader: asyncio.StreamReader) -> list[Any] | None:
    """The next message; None when there will be none, or none that could be understood."""
    try:
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        if size > MESSAGE_BYTES_MAX:
            return None
        message = json.loads(await reader.readexactly(size))
    except (OSError, EOFError, ValueError, RecursionError):
        return None
    return message if isinstance(message, list) and message else None


def write(writer: asyncio.StreamWriter, frame: bytes) -> bool:
    """Send it on its way; False if the line has ended, and surely nothing was sent."""
    try:
        if writer.is_closing():
            return False
        writer.write(frame)
    except RuntimeError:  # how one of the loops says it
        return False
    return True


def travels(error: Exception) -> bool:
    """Whether it arrives as what it is."""
    return type(error) in KINDS.values()


def told(error: Exception) -> list[str]:
    """An error by its code and its sentence."""
    if isinstance(error, TenureError) and travels(error):
        return [error.code, str(error)]
    return [OutcomeUnknown.code, f"{type(error).__name__} where the provider is served: {error}"]


def heard(code: str, sentence: str) -> TenureError:
    """The error again."""
    return KINDS.get(code, OutcomeUnknown)(sentence)
