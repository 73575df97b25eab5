"""The inbox: applies each event once, in the consumer's own transaction.

Events come at least once, and a copy can come late.  What was applied is written down in the very
transaction in which it is applied, so a crash at any instant leaves both or neither.  Of one agent
an event that is older than the last one applied is ignored: what it told of is past.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any

Event = Mapping[str, Any]
"""One event as CloudEvents JSON has it."""
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
    """What became of an event."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    """It was applied before; nothing was done."""
    OLD = "old"
    """A later one of its agent was applied before; nothing was done."""


class Inbox:
    """One consumer's inbox, in two tables of its database."""

    def __init__(self, connection: sqlite3.Connection, *, consumer: str = "default") -> None:
        """Use this connection; the tables are made if they are not there.

        Args:
            connection: the one on which your own rows are written.
            consumer: tells several consumers of one database apart.
        """
        self._connection = connection
        self._consumer = consumer
        with self._transaction():
            for sql in _TABLES:
                connection.execute(sql)

    def apply(self, event: Event, work: Work) -> Outcome:
        """Call `work` with the connection and the event, unless that was done before.

        All that `work` writes on the connection is committed together with the note that it was
        done.  If it raises, nothing of it stays, and the event can be applied again.  Inside a
        transaction of your own it becomes a part of that, and is committed when you commit.
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
        """Forget events told before this instant (`2026-11-17T08:00:00`); how many there were.

        Keep them for as long as a copy can come.  Which one of an agent was the last stays known.
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
        given = (self._consumer, source, agent, sequence)
        return self._connection.execute(sql, given).rowcount == 1

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
