"""Connects to the server, checks that it is fit to keep records, and explains its errors.

Every connection has a name, so that one whose outcome is unknown can be ended from another.
Nothing of the driver's errors passes: `translate_error` makes of them what the port promises.
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
"""One statement; the server ends it a little earlier than we stop to listen."""
HURRY_SECONDS = 1.0
"""How long a lost server is waited for by a process that is leaving."""
LOCK_SECONDS = 2.0
"""For a row that somebody else holds: our own processes hold one for milliseconds."""
DURABLE = ("on", "remote_apply")
"""Values of synchronous_commit at which a commit is on the disks of all that it waits for."""
SCHEMA = "tenure"
NAME_MAX = 50
"""Characters of a schema's name; the server cuts off what is longer than 63 without a word."""
SESSION = {
    # Plans are made once: every statement finds its rows by a key, however large the tables are.
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

GONE = (
    asyncpg.InterfaceError, asyncpg.PostgresConnectionError, asyncpg.ConnectionDoesNotExistError,
    asyncpg.AdminShutdownError, asyncpg.CrashShutdownError, asyncpg.CannotConnectNowError,
    asyncpg.InternalClientError, asyncpg.IdleInTransactionSessionTimeoutError,
    OSError, asyncio.IncompleteReadError, TimeoutError,
)  # fmt: skip
"""The connection is no more, or nobody knows: what it was last asked to do has no known outcome."""
BUSY = (
    asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError,
    asyncpg.TooManyConnectionsError, asyncpg.OutOfMemoryError, asyncpg.QueryCanceledError,
    asyncpg.ConfigurationLimitExceededError, asyncpg.ReadOnlySQLTransactionError,
)  # fmt: skip
"""Not this time, and nothing was kept: it may well go another time or with another server."""


class Address(NamedTuple):
    """Where the records are kept."""

    url: str
    schema: str

    def shown(self) -> str:
        """As it may be told: without the password."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        user = f"{parts.username}@" if parts.username else ""
        return f"{parts.scheme}://{user}{host}{parts.path} (schema {self.schema})"


def read_address(url: str, schema: str = "") -> Address:
    """Take the schema's name out of the URL: `postgresql://…/database?schema=name`."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreError(f"This is no address of a database ({error}).") from None
    if parts.scheme not in {"postgresql", "postgres"}:
        raise StoreError(
            "A PostgreSQL store is named like postgresql://user@host:5432/database,"
            f" not by {parts.scheme or 'a path'!r}."
        )
    asked = parse_qsl(parts.query)
    name = schema or dict(asked).get("schema", SCHEMA)
    plain = name.isidentifier() and name.isascii() and name == name.lower()
    if not plain or len(name) > NAME_MAX:
        raise StoreError(
            f"A schema is called by small letters, digits and underscores, not {name!r}."
        )
    left = urlencode([pair for pair in asked if pair[0] != "schema"])
    return Address(urlunsplit(parts._replace(query=left)), name)


async def connect(
    address: Address,
    name: str,
    settings: Mapping[str, str] | None = None,
    *,
    standby: bool = False,
    history: History | None = None,
) -> asyncpg.Connection:
    """A connection of this name; the server answers a commit only when it is durable.

    With synchronous replication that includes the standby's disk.  A standby is refused like a
    server that is down, unless `standby` says that one will do.  StoreRewound if the server lacks
    what `history` has.
    """
    given = {"search_path": f'"{address.schema}"', "application_name": name, **(settings or {})}
    connection = await asyncpg.connect(address.url, timeout=CONNECT_SECONDS, server_settings=given)
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            if not standby and await connection.fetchval("SELECT pg_is_in_recovery()"):
                raise ConnectionRefusedError("this server is a standby")
            # Said once more: what stands between may have named the session after itself.
            await connection.fetchval("SELECT set_config('application_name', $1, false)", name)
            if await connection.fetchval("SHOW synchronous_commit") not in DURABLE:
                await connection.execute("SET synchronous_commit = on")
            if history is not None:
                await history.check(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def close(connection: asyncpg.Connection | None) -> None:
    """Let go of it, politely if it still listens."""
    if connection is None or connection.is_closed():
        return
    try:
        await connection.close(timeout=2.0)
    except Exception:  # noqa: BLE001 (it is given up in any case)
        connection.terminate()


async def refuse_unfit(connection: asyncpg.Connection) -> None:
    """Refuse a server that would lose records or cannot take any; nothing is touched."""
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
            "The database is not in UTF-8: make one with ENCODING 'UTF8'. Nothing was touched."
        )
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        raise StoreError(
            "The server is a standby and takes no records: name the primary,"
            " or add target_session_attrs=read-write to the address."
        )
    if await connection.fetchval("SHOW transaction_read_only") == "on":
        raise StoreError(
            "The database is read-only for this user (default_transaction_read_only):"
            " nothing was touched. Set it off and start again."
        )


async def write_problem(address: Address) -> str:
    """Why a new session cannot write, in words that name no address; "" if it can."""
    try:
        connection = await connect(address, "tenure probe", standby=True)
    except (*GONE, asyncpg.PostgresError):
        return "the PostgreSQL server cannot be reached, or it accepts no connection"
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            if await connection.fetchval("SELECT pg_is_in_recovery()"):
                return "the PostgreSQL server is a standby, which takes no records"
            if await connection.fetchval("SHOW transaction_read_only") == "on":
                return "the PostgreSQL database is read-only (default_transaction_read_only)"
    except (*GONE, asyncpg.PostgresError):
        return "the PostgreSQL server does not answer"
    finally:
        connection.terminate()
    return ""


async def end_session(connection: asyncpg.Connection, name: str) -> None:
    """End the session of this name, if the server still has it, and wait until it is gone.

    From then on what it was last asked to do is either committed or never will be.
    """
    while await connection.fetchval(  # noqa: ASYNC110 (only the server knows)
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name = $1 AND pid <> pg_backend_pid()",
        name,
    ):
        await asyncio.sleep(0.01)


def translate_error(error: BaseException, address: Address) -> StoreError:
    """What a caller is told; the driver's error in brackets, if it is any help."""
    where = address.shown()
    match error:
        case StoreError():
            return error
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            said = "it refuses the user or the password; check them"
        case asyncpg.InvalidCatalogNameError():
            said = "it has no database of that name; make it with createdb"
        case asyncpg.DiskFullError():
            return StoreFull(f"The disk of {where} is full: this was not kept. Make room there.")
        case asyncpg.LockNotAvailableError():
            said = "somebody holds a row of this and does not let go; pg_stat_activity tells who"
        case asyncpg.ReadOnlySQLTransactionError():
            said = "it is read-only: name the primary, or set default_transaction_read_only off"
        case asyncpg.TooManyConnectionsError():
            said = "it has no connection left: raise max_connections or run fewer processes"
        case asyncpg.InsufficientPrivilegeError():
            said = f"its user may not do that ({error}): grant CREATE and TEMP on the database"
        case TimeoutError():
            said = "it does not answer; see that it runs and can be reached from here"
        case ssl.SSLError():
            said = f"its TLS certificate is not accepted ({error.reason})"
        case OSError():
            said = f"it cannot be reached ({error}); see that it runs and can be reached from here"
        case _:
            said = f"it says: {error}"
    return StoreError(f"The store {where} cannot be used now: {said}. Nothing was kept of this.")
