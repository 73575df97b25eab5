"""Applies the numbered migrations of an SQLite file: `0001_pre_kernel.sql`, forward only.

A `pre` migration runs before the code that needs it is started, a `post` migration after the code
that cannot work with it has ended.  A process that opens its file runs both kinds.

`user_version` is the number of the last migration that older code cannot work with: a release opens
a file only if it knows this number.  A `pre` migration that begins with `-- Only adds:` may only
add tables and their rows, indexes, and nullable columns.  It is recorded in the table `migration`
and leaves `user_version` as it is, so that the previous release can still use the file; rows of
that release have NULL in the new columns.
"""

import re
from pathlib import Path
from typing import NamedTuple

import apsw

_NAME = re.compile(r"(\d{4})_(?:pre|post)_[a-z0-9_]+\.sql")
_ADDING_STATEMENT = re.compile(
    r"create\s+table\s|create\s+index\s"
    r"|alter\s+table\s+\w+\s+add\s+column\s+\w+\s+(?:double\s+precision|\w+)"
    r"(?:\s+collate\s+\S+)?(?:\s+default\s+\S+)?$",
    re.IGNORECASE,
)
ONLY_ADDS = "-- Only adds:"
CREATE_MIGRATION_TABLE = (
    "CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"
)


class Migration(NamedTuple):
    """One migration file."""

    number: int
    name: str
    sql: str

    @property
    def only_adds(self) -> bool:
        """Whether older code can still use the file: a `pre` migration that only adds."""
        return self.sql.startswith(ONLY_ADDS)


def read_migrations(folder: Path) -> list[Migration]:
    """The folder's files in order; ValueError for a missing or repeated number or another name."""
    found: list[Migration] = []
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) != len(found) + 1:
            raise ValueError(
                f"{path.name} is not migration {len(found) + 1:04} (NNNN_pre|post_name.sql)"
            )
        one = Migration(len(found) + 1, path.stem, path.read_text(encoding="utf-8"))
        if one.only_adds and not ("_pre_" in one.name and _only_adds(one.sql)):
            raise ValueError(f"{path.name} does more than add, or is not a pre migration")
        found.append(one)
    return found


def _only_adds(sql: str) -> bool:
    statements_text = re.sub(r"--[^\n]*", "", sql)
    new_tables = re.findall(r"create\s+table\s+(\w+)", statements_text, re.IGNORECASE)
    fills = re.compile(rf"insert\s+into\s+(?:{'|'.join(new_tables) or '$'})\s", re.IGNORECASE)
    statements = [one.strip() for one in statements_text.split(";") if one.strip()]
    return all(_ADDING_STATEMENT.match(one) or fills.match(one) for one in statements)


def last_migration(connection: apsw.Connection) -> int:
    """The number of the last migration that was applied to a file."""
    version: int = connection.pragma("user_version")
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migration'").fetchone():
        recorded: int = connection.execute("SELECT max(number) FROM migration").get or 0
        return max(version, recorded)
    return version


def migrate(connection: apsw.Connection, migrations: list[Migration]) -> list[str]:
    """Apply the missing migrations, each in a transaction with its number; returns their names."""
    version = last_migration(connection)
    applied = [migration for migration in migrations if migration.number > version]
    for migration in applied:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(migration.sql)
            if migration.only_adds:
                connection.execute(CREATE_MIGRATION_TABLE)
                connection.execute(
                    "INSERT INTO migration VALUES (?, ?)", (migration.number, migration.name)
                )
            else:
                connection.pragma("user_version", migration.number)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return [migration.name for migration in applied]
