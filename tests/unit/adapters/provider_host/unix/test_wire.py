"""The wire: messages of bounded size, which carry whatever a caller may say."""

import asyncio
import math

import pytest

from tenure.adapters.provider_host.unix import wire
from tenure.adapters.provider_host.unix.wire import MessageType
from tenure.core.errors import (
    Conflict,
    Invalid,
    OutcomeUnknown,
    ProviderError,
    Rejected,
    Unavailable,
)


def decode(data: bytes):
    async def main():
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        return await wire.read(reader)

    return asyncio.run(main())


def round_trip(value: object) -> object:
    message = decode(wire.encode([MessageType.VALUE, 1, value]))
    assert message is not None
    return message[2]


@pytest.mark.parametrize(
    "value", ["r\ud800", "a\x00b", "日本", 2**70, -1, 0.1, True, None, [1, ["x"]], {"a": {"b": []}}]
)
def test_whatever_json_can_say_arrives_as_it_is(value):
    assert round_trip(value) == value


@pytest.mark.parametrize("odd", [b"x", {1, 2}, object(), math.nan])
def test_what_it_cannot_say_arrives_as_a_number_that_is_none(odd):
    arrived = round_trip(odd)
    assert isinstance(arrived, float)
    assert math.isnan(arrived)


def test_what_is_too_long_or_never_ends_is_not_sent():
    with pytest.raises(wire.MessageTooLong, match="bytes"):
        wire.encode(["x" * wire.MESSAGE_BYTES_MAX])
    round_and_round: list[object] = []
    round_and_round.append(round_and_round)
    with pytest.raises(wire.MessageTooLong, match="never ends"):
        wire.encode(round_and_round)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        b"\0\0\0\x05[1",
        b"\xff\xff\xff\xff[1]",
        b"\0\0\0\x02{}",
        b"\0\0\0\x02[]",
        b"\0\0\0\x03\xff\xff\xff",
        b"\0\x01\x86\xa0" + b"[" * 100_000,
    ],
)
def test_what_is_no_message_ends_the_line(data):
    assert decode(data) is None


@pytest.mark.parametrize("kind", [Unavailable, Rejected, OutcomeUnknown, Invalid])
def test_an_error_arrives_as_what_it_is(kind):
    arrived = wire.decode_error(*wire.encode_error(kind("because")))
    assert (type(arrived), str(arrived)) == (kind, "because")


@pytest.mark.parametrize("odd", [ValueError("because"), Conflict("because"), ProviderError("b")])
def test_any_other_error_is_an_unknown_outcome(odd):
    arrived = wire.decode_error(*wire.encode_error(odd))
    assert type(arrived) is OutcomeUnknown
    assert type(odd).__name__ in str(arrived)
