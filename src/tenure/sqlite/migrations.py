"""Numbered files that make and change a file's tables: `0001_pre_kernel.sql`, forward only.

`pre` runs before the code that needs it, `post` after the last code that does not; a single process
runs both when it opens its file.

`user_version` is the number of the last migration that code without it cannot live with: code opens
a file whose number it knows.  A `pre` that begins with `-- Only adds:` and does no more (tables and
rows in them, indexes, columns that may be empty) leaves that number alone and is noted in the table
`migration`, so that the release before can go on with the file; what it writes has the new columns
empty.
"""

import re
from pathlib import Path
from typing import NamedTuple

import apsw

_NAME = re.compile(r"(\d{4})_(?:pre|post)_[a-z0-9_]+\.sql")
_ADDS = re.compile(
    r"create\s+table\s|create\s+index\s"
    r"|alter\s+table\s+\w+\s+add\s+column\s+\w+\s+(?:double\s+precision|\w+)"
    r"(?:\s+collate\s+\S+)?(?:\s+default\s+\S+)?$",
    re.IGNORECASE,
)
ONLY_ADDS = "-- Only adds:"
NOTED = "CREATE TABLE IF NOT EXISTS migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL)"


class Migration(NamedTuple):
    """One step from the version before it."""

    number: int
    name: str
    sql: str

    @property
    def adds(self) -> bool:
        """Whether code that does not know of it can go on: a `pre` that takes nothing away."""
        return self.sql.startswith(ONLY_ADDS)


def read_migrations(folder: Path) -> list[Migration]:
    """The folder's files in order; a hole, a double or another name is a mistake in the package."""
    found: list[Migration] = []
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) != len(found) + 1:
            raise ValueError(
                f"{path.name} is not migration {len(found) + 1:04} (NNNN_pre|post_name.sql)"
            )
        one = Migration(len(found) + 1, path.stem, path.read_text(encoding="utf-8"))
        if one.adds and not ("_pre_" in one.name and _only_adds(one.sql)):
            raise ValueError(f"{path.name} does more than add, or is no pre")
        found.append(one)
    return found


def _only_adds(sql: str) -> bool:
    bare = re.sub(r"--[^\n]*", "", sql)
    new = re.findall(r"create\s+table\s+(\w+)", bare, re.IGNORECASE)
    fills = re.compile(rf"insert\s+into\s+(?:{'|'.join(new) or '$'})\s", re.IGNORECASE)
    said = [one.strip() for one in bare.split(";") if one.strip()]
    return all(_ADDS.match(one) or fills.match(one) for one in said)


def reached(connection: apsw.Connection) -> int:
    """The number of the last migration that was applied to a file."""
    version: int = connection.pragma("user_version")
    if connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migration'").fetchone():
        noted: int = connection.execute("SELECT max(number) FROM migration").get or 0
        return max(version, noted)
    return version


def migrate(connection: apsw.Connection, migrations: list[Migration]) -> list[str]:
    """Apply what the file lacks, each whole with its number or not at all; the names applied."""
    version = reached(connection)
    applied = [migration for migration in migrations if migration.number > version]
    for migration in applied:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(migration.sql)
            if migration.adds:
                connection.execute(NOTED)
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
