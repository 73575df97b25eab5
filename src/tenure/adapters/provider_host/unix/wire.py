"""The protocol: JSON after its length, many calls at once.

    server      [WELCOME, {…}]                                         once, to a new client
    client      [CALL, number, provider, method, arguments]
                [NEXT, number] · [DROP, number]                        more of a listing · end it
    server      [VALUE | REFUSAL | PAGE | ERROR | LEFT | ENDED, number, …]    by the call's number
                [LEAVING]                                              no more calls, disconnect

It is Python's own JSON, because that carries every argument, invalid text too: the provider then
refuses it as it would have refused it here.  A value that JSON does not have is sent as NaN, which
no provider accepts.
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
ERROR_TYPES: Mapping[str, type[TenureError]] = {
    kind.code: kind for kind in (Unavailable, Rejected, OutcomeUnknown, Invalid)
}
"""Errors that are sent as they are.  Any other is a defect there, and here an unknown outcome."""


class MessageType(StrEnum):
    """The first element of every message."""

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
    """The call was not started: the server is stopping."""


class MessageTooLong(Exception):
    """A message exceeds the maximum size."""


def encode(message: list[Any]) -> bytes:
    """Encode a message with its length; MessageTooLong if it exceeds the limit."""
    try:
        body = json.dumps(message, separators=(",", ":"), default=_encodable).encode("ascii")
    except (ValueError, RecursionError) as error:
        raise MessageTooLong(f"a message that never ends ({error})") from None
    if len(body) > MESSAGE_BYTES_MAX:
        raise MessageTooLong(f"a message of {len(body)} bytes; {MESSAGE_BYTES_MAX} is the most")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _encodable(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else nan


async def read(reader: asyncio.StreamReader) -> list[Any] | None:
    """Return the next message; None at the end, or if it is not a message of this protocol."""
    try:
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        if size > MESSAGE_BYTES_MAX:
            return None
        message = json.loads(await reader.readexactly(size))
    except (OSError, EOFError, ValueError, RecursionError):
        return None
    return message if isinstance(message, list) and message else None


def write(writer: asyncio.StreamWriter, frame: bytes) -> bool:
    """Send a frame; False if the connection is closed, and surely nothing was sent."""
    try:
        if writer.is_closing():
            return False
        writer.write(frame)
    except RuntimeError:  # how one event loop reports a closed transport
        return False
    return True


def is_transmitted(error: Exception) -> bool:
    """Whether this error arrives with its type."""
    return type(error) in ERROR_TYPES.values()


def encode_error(error: Exception) -> list[str]:
    """Return an error as its code and its sentence."""
    if isinstance(error, TenureError) and is_transmitted(error):
        return [error.code, str(error)]
    return [OutcomeUnknown.code, f"{type(error).__name__} where the provider is served: {error}"]


def decode_error(code: str, sentence: str) -> TenureError:
    """Return the error with this code."""
    return ERROR_TYPES.get(code, OutcomeUnknown)(sentence)
