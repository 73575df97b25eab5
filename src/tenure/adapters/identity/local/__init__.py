"""Identity in one SQLite file: clients of agents, and an OAuth 2.0 authorization server for them.

Its signing keys are encrypted with a sealing key in another file.
"""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import apsw

from tenure.adapters.identity.local import clients, registrations, tokens
from tenure.adapters.identity.local.provider import LocalIdentity
from tenure.adapters.identity.local.signers import SIGNER, TOKEN_SECONDS_MAX
from tenure.adapters.identity.local.tokens import TOKEN_SECONDS
from tenure.core.egress import is_loopback
from tenure.core.errors import Invalid
from tenure.home.key_file import make_key, read_key
from tenure.ports.clock import Clock
from tenure.sqlite.commit_thread import WorkRunner
from tenure.sqlite.queries import read_queries
from tenure.sqlite.resource_file import open_resource_file

__all__ = ["APPLICATION_ID", "TABLES", "LocalIdentity", "build", "invalidate_tokens"]

APPLICATION_ID = int.from_bytes(b"Tnid", "big")
"""The application id in the header of every identity file."""
TABLES = {
    "client": clients.CLIENT,
    "permit": registrations.PERMIT,
    "used": tokens.USED,
    "revoked": tokens.REVOKED,
    "epoch": tokens.EPOCH,
    "signer": SIGNER,
}

_HERE = Path(__file__).parent


def build(
    path: Path | str,
    *,
    issuer: str,
    clock: Clock,
    flush: WorkRunner | None = None,
    token_seconds: float = TOKEN_SECONDS,
    epoch: Callable[[], int] = lambda: 1,
) -> LocalIdentity:
    """Open the provider's file, creating it if needed, and lock it until `close`.

    `issuer` is the origin of the authorization server; tokens of another `epoch` of the plane are
    inactive.  Raises Invalid for a setting, and a StoreError for a file that cannot be used, also
    if its sealing key is missing.
    """
    check_issuer(issuer)
    if not 1.0 <= token_seconds <= TOKEN_SECONDS_MAX:
        raise Invalid(f"A token lives 1 to {TOKEN_SECONDS_MAX:.0f} seconds, not {token_seconds}")
    queries = read_queries(_HERE / "queries")
    # The sealing key is created before the file: a file without one has lost it.
    sealing = key_path(path)
    if not Path(path).exists():
        make_key(sealing)
    read_key(sealing)
    resources = open_resource_file(
        path,
        migrations=_HERE / "migrations",
        tables=TABLES,
        application_id=APPLICATION_ID,
        clock=clock,
        flush=flush,
    )
    return LocalIdentity(
        resources, queries, issuer=issuer, sealing=sealing, token_seconds=token_seconds, epoch=epoch
    )


def key_path(database: Path | str) -> Path:
    """The file of the sealing key of this database.

    The database alone, or a backup of it, reveals no private key.  If the sealing key is lost, the
    signing keys are lost, and nothing else.
    """
    return Path(f"{database}.key")


def invalidate_tokens(path: Path) -> None:
    """Invalidate every token that was issued from this file, for a restored home.

    Signing keys and permits are deleted and a new sealing key is created; clients and their own
    keys stay.
    """
    file = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        file.pragma("synchronous", "full")
        file.execute("BEGIN IMMEDIATE; DELETE FROM signer; DELETE FROM permit; COMMIT")
    finally:
        file.close()
    key_path(path).unlink(missing_ok=True)
    make_key(key_path(path))


def check_issuer(issuer: str) -> None:
    """Refuse an issuer that is not an origin, or is neither https nor on loopback."""
    try:
        parts = urlsplit(issuer)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or issuer != f"{parts.scheme}://{parts.netloc}" or "@" in parts.netloc:
        raise Invalid(f"The issuer must be an origin such as https://tenure.example, not {issuer}")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        raise Invalid(f"The issuer must be https, or http on loopback, not {issuer}")
