"""Our messages as Temporal keeps them: the JSON of its own converter, made and read by msgspec.

Temporal's builds each message anew from the hints of its class, which takes longer than all that an
activity of ours decides.  What it has written reads here, and what is written here it can read.
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


class Json(EncodingPayloadConverter):
    """Plain data and dataclasses of them."""

    @property
    def encoding(self) -> str:
        """As Temporal calls it."""
        return ENCODING

    def to_payload(self, value: Any) -> Payload:
        """What it is as JSON, its keys in order."""
        return Payload(metadata={"encoding": ENCODING.encode()}, data=_encode(value))

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        """A value of this type; RuntimeError, as Temporal expects, if it is none."""
        try:
            return _decoder(type_hint).decode(payload.data)
        except msgspec.MsgspecError as error:
            raise RuntimeError(f"this is no {type_hint}: {error}") from None


class Converter(CompositePayloadConverter):
    """Nothing, or JSON."""

    def __init__(self) -> None:
        super().__init__(BinaryNullPayloadConverter(), Json())


CONVERTER = DataConverter(payload_converter_class=Converter)
