"""TLS for tests: an authority, what it signs, and how a proxy carries what it has deciphered."""

import asyncio
import datetime as dt
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PEM = serialization.Encoding.PEM
THEN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


class Pair(NamedTuple):
    """A certificate and its key, as files."""

    certificate: str
    key: str


class Authority:
    """Signs certificates, which it writes below a directory."""

    def __init__(self, place: Path, name: str = "authority") -> None:
        self._place = place
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        made = self._issue(self._name, self._key, 100_000 * DAY)
        whole = x509.BasicConstraints(ca=True, path_length=None)
        signed = made.add_extension(whole, critical=True).sign(self._key, hashes.SHA256())
        self.file = str(place / f"{name}.pem")
        Path(self.file).write_bytes(signed.public_bytes(PEM))

    def sign(self, host: str, *, lasts: dt.timedelta = 100_000 * DAY) -> Pair:
        """A certificate for this host and for 127.0.0.1, good since 2020 for so long."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
        here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        names = [x509.DNSName(host)] + ([here] if host == "localhost" else [])
        made = self._issue(subject, key, lasts)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        stem = self._place / f"{host}-{lasts.days}-{made.__hash__()}"
        pair = Pair(f"{stem}.pem", f"{stem}.key")
        signed = made.sign(self._key, hashes.SHA256())
        Path(pair.certificate).write_bytes(signed.public_bytes(PEM))
        plain = serialization.NoEncryption()
        kind = serialization.PrivateFormat.PKCS8
        Path(pair.key).write_bytes(key.private_bytes(PEM, kind, plain))
        return pair

    def _issue(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, lasts: dt.timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(THEN)
            .not_valid_after(THEN + lasts)
        )


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on what is said until nobody says anything any more."""
    while some := await reader.read(65_536):
        writer.write(some)
        await writer.drain()
