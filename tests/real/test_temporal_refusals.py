"""What cannot work with Temporal is said in a sentence, within a bound."""

import asyncio
import datetime as dt
import socket
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from temporalio.service import RPCError, RPCStatusCode

from tenure.adapters.engine.temporal import TemporalSettings
from tenure.adapters.engine.temporal.connection import _refused, connect
from tenure.core.errors import EngineError, Invalid
from tenure.testing.temporal_server import free_port

pytestmark = pytest.mark.timeout(30)


async def refusal(settings: TemporalSettings) -> str:
    with pytest.raises(EngineError) as raised:
        await connect(settings)
    return str(raised.value)


def test_a_wrong_address_is_said_within_its_bound():
    settings = TemporalSettings(address=f"127.0.0.1:{free_port()}", connect_seconds=5.0)
    assert "cannot be reached" in asyncio.run(asyncio.wait_for(refusal(settings), 15))


def test_an_address_that_never_answers_is_said_within_its_bound():
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        port = deaf.getsockname()[1]
        settings = TemporalSettings(address=f"127.0.0.1:{port}", connect_seconds=0.5)
        words = asyncio.run(asyncio.wait_for(refusal(settings), 10))
    assert "did not answer within 0.5 s" in words


def test_a_wrong_namespace_is_named_with_the_command_that_makes_it(temporal):
    settings = TemporalSettings(address=temporal.address, namespace="elsewhere")
    words = asyncio.run(refusal(settings))
    assert "has no namespace 'elsewhere'" in words
    assert "temporal operator namespace create --namespace elsewhere" in words


def test_tls_to_a_server_without_it_is_said(temporal):
    settings = TemporalSettings(address=temporal.address, tls=True, connect_seconds=5.0)
    assert "over TLS" in asyncio.run(refusal(settings))


def test_an_expired_certificate_is_called_that(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    then = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    issued = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(then)
        .not_valid_after(then + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    kind = serialization.PrivateFormat.PKCS8
    certificate, secret = tmp_path / "server.pem", tmp_path / "server.key"
    certificate.write_bytes(issued.public_bytes(pem))
    secret.write_bytes(key.private_bytes(pem, kind, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, secret)
    context.set_alpn_protocols(["h2"])

    async def main() -> str:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=context)
        port = server.sockets[0].getsockname()[1]
        settings = TemporalSettings(
            address=f"localhost:{port}", tls_server_ca=str(certificate), connect_seconds=5.0
        )
        try:
            return await refusal(settings)
        finally:
            server.close()

    assert "a certificate has expired" in asyncio.run(main())


@pytest.mark.parametrize("status", [RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED])
def test_a_missing_permission_is_said(status):
    error = RPCError("Request unauthorized.", status, b"")
    words = _refused(TemporalSettings(namespace="ours"), error)
    assert "does not let this client into namespace 'ours'" in words
    assert "API key" in words


def test_a_certificate_file_that_is_not_there_is_named(temporal):
    settings = TemporalSettings(address=temporal.address, tls_server_ca="/no/such/ca.pem")
    assert "/no/such/ca.pem cannot be read" in asyncio.run(refusal(settings))


@pytest.mark.parametrize(
    "odd",
    [
        {"tls_client_certificate": "a"},
        {"activities_max": 0},
        {"relay_seconds": 0.0},
        {"address": ""},
        {"connect_seconds": float("inf")},
    ],
)
def test_settings_that_could_not_work_are_refused(odd):
    with pytest.raises(Invalid):
        TemporalSettings(**odd)
