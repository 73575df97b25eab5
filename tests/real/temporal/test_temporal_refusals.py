"""What cannot work with Temporal is said in a sentence, within a bound; TLS is in its own file."""

import asyncio
import socket

import pytest

from tenure.adapters.engine.temporal import TemporalSettings
from tenure.adapters.engine.temporal.connection import connect
from tenure.core.errors import EngineError, Invalid
from tenure.testing.servers import lasting_port

pytestmark = pytest.mark.timeout(300)


async def refusal(settings: TemporalSettings) -> str:
    with pytest.raises(EngineError) as raised:
        await connect(settings)
    return str(raised.value)


def test_a_wrong_address_is_said_within_its_bound():
    settings = TemporalSettings(address=f"127.0.0.1:{lasting_port()}", connect_seconds=5.0)
    words = asyncio.run(asyncio.wait_for(refusal(settings), 100))
    assert "cannot be reached: connection refused; check the address" in words


def test_an_address_that_never_answers_is_said_within_its_bound():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        port = deaf.getsockname()[1]
        settings = TemporalSettings(address=f"127.0.0.1:{port}", connect_seconds=0.5)
        words = asyncio.run(asyncio.wait_for(refusal(settings), 100))
    assert "did not answer within 0.5 s" in words


def test_a_wrong_namespace_is_named_with_the_command_that_makes_it(temporal):
    settings = TemporalSettings(address=temporal.address, namespace="elsewhere")
    words = asyncio.run(refusal(settings))
    assert "has no namespace 'elsewhere'" in words
    assert "temporal operator namespace create --namespace elsewhere" in words


def test_tls_to_a_server_without_it_is_said(temporal):
    settings = TemporalSettings(address=temporal.address, tls=True, connect_seconds=5.0)
    words = asyncio.run(refusal(settings))
    assert "over TLS: the server does not speak TLS; check" in words


def test_a_certificate_file_that_is_not_there_is_named(temporal):
    settings = TemporalSettings(address=temporal.address, tls_server_ca="/no/such/ca.pem")
    assert "/no/such/ca.pem cannot be read" in asyncio.run(refusal(settings))


@pytest.mark.parametrize(
    "odd",
    [
        {"tls_client_certificate": "a"},
        {"activities_max": 0},
        {"run_starter_seconds": 0.0},
        {"address": ""},
        {"connect_seconds": float("inf")},
    ],
)
def test_settings_that_could_not_work_are_refused(odd):
    with pytest.raises(Invalid):
        TemporalSettings(**odd)
