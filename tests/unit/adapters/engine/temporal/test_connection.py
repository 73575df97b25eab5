"""What Temporal's library says of a connection that fails, in words of people."""

import pytest

from tenure.adapters.engine.temporal.connection import root_cause

ASKED = "Failed client connect: `get_system_info` call error after connection: Status { code: "
CONNECT = "Failed client connect: Server connection error: tonic::transport::Error(Transport, "


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            CONNECT + 'ConnectError(ConnectError("tcp connect error", 127.0.0.1:27233, Os { code: '
            '111, kind: ConnectionRefused, message: "Connection refused" })))',
            "connection refused",
        ),
        (
            CONNECT + 'ConnectError(ConnectError("dns error", Custom { kind: Uncategorized, error: '
            '"failed to lookup address information: Name or service not known" })))',
            "failed to lookup address information: Name or service not known",
        ),
        (
            ASKED + 'Unknown, message: "transport error", source: Some('
            "tonic::transport::Error(Transport, hyper::Error(Io, Custom { kind: UnexpectedEof, "
            'error: "peer closed connection without sending TLS close_notify: https://x" }))) }',
            "peer closed connection without sending TLS close_notify",
        ),
        (
            CONNECT + "ConnectError(Custom { kind: InvalidData, error: "
            "InvalidCertificate(UnknownIssuer) }))",
            "the server's certificate is not signed by a trusted CA",
        ),
        (
            CONNECT + "ConnectError(Custom { kind: InvalidData, error: InvalidCertificate("
            'NotValidForNameContext { expected: DnsName("a"), presented: ["b"] }) }))',
            "the server's certificate is for another name",
        ),
        (
            CONNECT + "ConnectError(Custom { kind: InvalidData, error: "
            "InvalidCertificate(Revoked) }))",
            "InvalidCertificate: Revoked",
        ),
        ("it did not answer within 5 s", "it did not answer within 5 s"),
        ("workflow service is\ngone.", "workflow service is gone"),
    ],
)
def test_the_first_meaningful_cause_is_said_and_nothing_of_the_library(words, sentence):
    assert root_cause(words) == sentence
