"""Connects to the server, checks its settings, and translates its errors.

Every connection has a name, so that a session whose outcome is unknown can be ended from another
one.  `translate_error` turns every error of the driver into one that the port promises.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from tenure.adapters.store.postgres.history import History
from tenure.core.errors import StoreError, StoreFull, StoreUnsafe

VERSION_MIN = 14
CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 30.0
"""Timeout of one statement; the server's own timeout is a little shorter."""
STOPPING_SECONDS = 1.0
"""How long a process that stops waits for a lost server."""
LOCK_SECONDS = 2.0
"""Lock timeout of a row; our own processes lock a row for milliseconds only."""
DURABLE_COMMIT_VALUES = ("on", "remote_apply")
"""Values of synchronous_commit with which a commit is flushed on the server and its standby."""
DEFAULT_SCHEMA = "tenure"
SCHEMA_CHARACTERS_MAX = 50
"""Characters of a schema's name; the server silently truncates a name longer than 63."""
SESSION_SETTINGS = {
    # One generic plan for each statement: all find their rows by a key, at any size of the tables.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "lock_timeout": f"{LOCK_SECONDS:g}s",
    "statement_timeout": f"{STATEMENT_SECONDS - 5:g}s",
    "idle_in_transaction_session_timeout": "10s",
    "client_min_messages": "warning",
}

LOST_CONNECTION_ERRORS = (
    asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.ConnectionDoesNotExistError,
    asyncpg.AdminShutdownError, asyncpg.CrashShutdownError, asyncpg.CannotConnectNowError,
    asyncpg.InternalClientError, asyncpg.IdleInTransactionSessionTimeoutError,
    OSError, asyncio.IncompleteReadError, TimeoutError,
)  # fmt: skip
"""The connection is or may be lost: its last statement has no known outcome."""
RETRYABLE_ERRORS = (
    asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError,
    asyncpg.TooManyConnectionsError, asyncpg.OutOfMemoryError, asyncpg.QueryCanceledError,
    asyncpg.ConfigurationLimitExceededError, asyncpg.ReadOnlySQLTransactionError,
)  # fmt: skip
"""Nothing was stored; a retry, perhaps with another server, may succeed."""


class Address(NamedTuple):
    """The URL of the database and the name of the schema."""

    url: str
    schema: str

    def display(self) -> str:
        """The address without the password, for messages."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        user = f"{parts.username}@" if parts.username else ""
        return f"{parts.scheme}://{user}{host}{parts.path} (schema {self.schema})"


def read_address(url: str, schema: str = "") -> Address:
    """Split a URL `postgresql://…/database?schema=name` into the database and the schema."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreError(f"This is not the address of a database ({error}).") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise StoreError(
            "A PostgreSQL store is named like postgresql://user@host:5432/database,"
            f" not by {parts.scheme or 'a path'!r}."
        )
    options = parse_qsl(parts.query)
    name = schema or dict(options).get("schema", DEFAULT_SCHEMA)
    is_plain = name.isidentifier() and name.isascii() and name == name.lower()
    if not is_plain or len(name) > SCHEMA_CHARACTERS_MAX:
        raise StoreError(
            f"A schema's name has lower-case letters, digits and underscores; {name!r} has not."
        )
    other_options = urlencode([pair for pair in options if pair[0] != "schema"])
    return Address(urlunsplit(parts._replace(query=other_options)), name)


async def connect(
    address: Address,
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    standby: bool = False,
    history: History | None = None,
) -> asyncpg.Connection:
    """Open a connection with this name; the server acknowledges a commit only when it is durable.

    With synchronous replication that includes the standby's disk.  A standby is refused like a
    server that is down, unless `standby` is true.  StoreRewound if the server lacks a batch of
    `history`.
    """
    session_settings = {
        "search_path": f'"{address.schema}"',
        "application_name": name,
        **(settings or {}),
    }
    connection = await asyncpg.connect(
        address.url, timeout=CONNECT_SECONDS, server_settings=session_settings
    )
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            if not standby and await connection.fetchval("SELECT pg_is_in_recovery()"):
                raise ConnectionRefusedError("this server is a standby")
            # Set again: a proxy may have replaced the name by its own.
            await connection.fetchval("SELECT set_config('application_name', $1, false)", name)
            if await connection.fetchval("SHOW synchronous_commit") not in DURABLE_COMMIT_VALUES:
                await connection.execute("SET synchronous_commit = on")
            if history is not None:
                await history.check(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def close(connection: asyncpg.Connection | None) -> None:
    """Close the connection; terminate it if the server does not answer."""
    if connection is None or connection.is_closed():
        return
    try:
        await connection.close(timeout=2.0)
    except Exception:  # noqa: BLE001 (it is terminated then)
        connection.terminate()


async def check_server(connection: asyncpg.Connection) -> None:
    """Refuse a server that would lose records or cannot store any; nothing is changed."""
    number = connection.get_server_version().major
    if number < VERSION_MIN:
        raise StoreUnsafe(
            f"This is PostgreSQL {number}; version {VERSION_MIN} or newer is needed."
            " Nothing was touched."
        )
    for setting in ("fsync", "full_page_writes"):
        if await connection.fetchval(f"SHOW {setting}") == "off":
            raise StoreUnsafe(
                f"The server runs with {setting} = off and would lose records in a crash:"
                " set it on and start the server again. Nothing was touched."
            )
    if await connection.fetchval("SHOW server_encoding") != "UTF8":
        raise StoreUnsafe(
            "The database is not in UTF-8: create one with ENCODING 'UTF8'. Nothing was touched."
        )
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        raise StoreError(
            "The server is a standby and accepts no writes: name the primary,"
            " or add target_session_attrs=read-write to the address."
        )
    if await connection.fetchval("SHOW transaction_read_only") == "on":
        raise StoreError(
            "The database is read-only for this user (default_transaction_read_only):"
            " nothing was touched. Set it off and start again."
        )


async def write_problem(address: Address) -> str:
    """Return why a new session cannot write, without the address; "" if it can."""
    try:
        connection = await connect(address, "tenure probe", standby=True)
    except (*LOST_CONNECTION_ERRORS, asyncpg.PostgresError):
        return "the PostgreSQL server cannot be reached, or it accepts no connection"
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            if await connection.fetchval("SELECT pg_is_in_recovery()"):
                return "the PostgreSQL server is a standby, which accepts no writes"
            if await connection.fetchval("SHOW transaction_read_only") == "on":
                return "the PostgreSQL database is read-only (default_transaction_read_only)"
    except (*LOST_CONNECTION_ERRORS, asyncpg.PostgresError):
        return "the PostgreSQL server does not answer"
    finally:
        connection.terminate()
    return ""


async def end_session(connection: asyncpg.Connection, name: str) -> None:
    """End the session with this name, if the server still has it, and wait until it has ended.

    From then on its last statement is either committed or never will be.
    """
    while await connection.fetchval(  # noqa: ASYNC110 (only the server knows)
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name = $1 AND pid <> pg_backend_pid()",
        name,
    ):
        await asyncio.sleep(0.01)


def translate_error(error: BaseException, address: Address) -> StoreError:
    """Translate an error of the driver into the StoreError for the caller."""
    where = address.display()
    match error:
        case StoreError():
            return error
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            problem = "it refuses the user or the password; check them"
        case asyncpg.InvalidCatalogNameError():
            problem = "it has no database of that name; create it with createdb"
        case asyncpg.DiskFullError():
            return StoreFull(f"The disk of {where} is full: this was not stored. Free space there.")
        case asyncpg.LockNotAvailableError():
            problem = "another session has locked a row of this for too long; see pg_stat_activity"
        case asyncpg.ReadOnlySQLTransactionError():
            problem = "it is read-only: name the primary, or set default_transaction_read_only off"
        case asyncpg.TooManyConnectionsError():
            problem = "it has no connection left: raise max_connections or run fewer processes"
        case asyncpg.InsufficientPrivilegeError():
            problem = f"its user may not do that ({error}): grant CREATE and TEMP on the database"
        case TimeoutError():
            problem = "it does not answer; check that it runs and can be reached from here"
        case ssl.SSLError():
            problem = f"its TLS certificate is not accepted ({error.reason})"
        case OSError():
            problem = f"it cannot be reached ({error}); check that it runs and its address"
        case _:
            problem = f"it reports: {error}"
    return StoreError(
        f"The store {where} cannot be used now: {problem}. Nothing of this was stored."
    )
