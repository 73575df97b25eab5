"""Numbered files that make and change a file's tables: `0001_pre_kernel.sql`, forward only.

`pre` runs before the code that needs it, `post` after the last code that does not; a single process
runs both when it opens its file.  The number of the last one applied is the file's `user_version`.
"""

import re
from pathlib import Path
from typing import NamedTuple

import apsw

_NAME = re.compile(r"(\d{4})_(?:pre|post)_[a-z0-9_]+\.sql")


class Migration(NamedTuple):
    """One step from the version before it."""

    number: int
    name: str
    sql: str


def read_migrations(folder: Path) -> list[Migration]:
    """The folder's files in order; a hole, a double or another name is a mistake in the package."""
    found: list[Migration] = []
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) != len(found) + 1:
            raise ValueError(
                f"{path.name} is not migration {len(found) + 1:04} (NNNN_pre|post_name.sql)"
            )
        found.append(Migration(len(found) + 1, path.stem, path.read_text(encoding="utf-8")))
    return found


def migrate(connection: apsw.Connection, migrations: list[Migration]) -> list[str]:
    """Apply what the file lacks, each whole with its number or not at all; the names applied."""
    version = connection.pragma("user_version")
    applied = [migration for migration in migrations if migration.number > version]
    for migration in applied:
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(migration.sql)
            connection.pragma("user_version", migration.number)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return [migration.name for migration in applied]
