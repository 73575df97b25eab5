"""Temporal's data converter for our messages: msgspec, with the same JSON as its own converter.

Temporal's own converter rebuilds each message from the type hints of its class.  That takes longer
than everything an activity decides.
"""

from functools import cache
from typing import Any

import msgspec
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    BinaryNullPayloadConverter,
    CompositePayloadConverter,
    DataConverter,
    EncodingPayloadConverter,
)

ENCODING = "json/plain"
_encode = msgspec.json.Encoder(order="sorted").encode


@cache
def _decoder(hint: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(Any if hint is None else hint)


class JsonPayloads(EncodingPayloadConverter):
    """Converts plain data and messages to JSON."""

    @property
    def encoding(self) -> str:
        """Temporal's name of the encoding."""
        return ENCODING

    def to_payload(self, value: Any) -> Payload:
        """Encode the value as JSON with sorted keys."""
        return Payload(metadata={"encoding": ENCODING.encode()}, data=_encode(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """Decode a value of this type; RuntimeError, as Temporal expects, if it does not fit."""
        try:
            return _decoder(type_hint).decode(payload.data)
        except msgspec.MsgspecError as error:
            raise RuntimeError(f"the payload is not a {type_hint}: {error}") from None


class MessagePayloads(CompositePayloadConverter):
    """Converts None, and JSON."""

    def __init__(self) -> None:
        super().__init__(BinaryNullPayloadConverter(), JsonPayloads())


CONVERTER = DataConverter(payload_converter_class=MessagePayloads)
