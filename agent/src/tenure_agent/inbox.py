"""The inbox: applies each event once, in the consumer's own transaction.

Events come at least once, and a copy can come late.  The inbox records an event in the same
transaction in which the consumer applies it, so a crash at any instant leaves both or neither.  An
event that is older than the last applied one of its agent is ignored, because it is out of date.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

Event = Mapping[str, Any]
"""One event, decoded from its CloudEvents JSON."""
Work = Callable[[sqlite3.Connection, Event], object]

_TABLES = (
    """CREATE TABLE IF NOT EXISTS tenure_inbox (
        consumer TEXT NOT NULL, source TEXT NOT NULL, id TEXT NOT NULL,
        time TEXT NOT NULL, PRIMARY KEY (consumer, source, id)
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS tenure_inbox_last (
        consumer TEXT NOT NULL, source TEXT NOT NULL, agent TEXT NOT NULL,
        sequence INTEGER NOT NULL, PRIMARY KEY (consumer, source, agent)
    ) WITHOUT ROWID""",
)


class Outcome(Enum):
    """How `Inbox.apply` ended."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    """It was applied before; nothing was done."""
    OLD = "old"
    """A later one of its agent was applied before; nothing was done."""


class Inbox:
    """One consumer's inbox, in two tables of its database."""

    def __init__(self, connection: sqlite3.Connection, *, consumer: str = "default") -> None:
        """Use this connection, and make the tables if they are missing.

        Args:
            connection: the one on which you write your own rows.
            consumer: a name, if several consumers share one database.
        """
        self._connection = connection
        self._consumer = consumer
        with self._transaction():
            for sql in _TABLES:
                connection.execute(sql)

    def apply(self, event: Event, work: Work) -> Outcome:
        """Call `work` with the connection and the event, unless the event was applied before.

        Everything that `work` writes on the connection is committed together with the record of the
        event.  If `work` raises, its writes are rolled back and the event can be applied again.
        Inside a transaction of your own all this is part of it, and is committed when you commit.
        """
        source, name = str(event["source"]), str(event["id"])
        agent, sequence = str(event["subject"]), int(event.get("sequence") or 0)
        with self._transaction() as connection:
            if not self._is_new(source, name, str(event["time"])):
                return Outcome.DUPLICATE
            if sequence and not self._is_later(source, agent, sequence):
                return Outcome.OLD
            work(connection, event)
        return Outcome.APPLIED

    def forget(self, before: str) -> int:
        """Delete the records of events before this time (`2026-11-17T08:00:00`); how many.

        Keep them for as long as a copy can come.  The last sequence of each agent is not deleted.
        """
        with self._transaction() as connection:
            sql = "DELETE FROM tenure_inbox WHERE consumer = ? AND time < ?"
            return connection.execute(sql, (self._consumer, before)).rowcount

    def _is_new(self, source: str, name: str, time: str) -> bool:
        sql = "INSERT INTO tenure_inbox VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
        return self._connection.execute(sql, (self._consumer, source, name, time)).rowcount == 1

    def _is_later(self, source: str, agent: str, sequence: int) -> bool:
        sql = (
            "INSERT INTO tenure_inbox_last VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET sequence = excluded.sequence"
            " WHERE excluded.sequence > sequence"
        )
        row = (self._consumer, source, agent, sequence)
        return self._connection.execute(sql, row).rowcount == 1

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """A transaction of our own, or a part of the one that is open."""
        connection = self._connection
        inner = connection.in_transaction
        connection.execute("SAVEPOINT tenure_inbox" if inner else "BEGIN IMMEDIATE")
        try:
            yield connection
        except BaseException:
            if inner:
                connection.execute("ROLLBACK TO tenure_inbox")
                connection.execute("RELEASE tenure_inbox")
            elif connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("RELEASE tenure_inbox" if inner else "COMMIT")
