"""The house rules about databases: numbered migrations, and the same tables in each database.

A store is made and upgraded by its migrations alone. They are read as text, since PostgreSQL would
need a server; SQLite, which needs none, shows that the text is read rightly (`columns_in_sqlite`).
"""

import re
from collections.abc import Sequence

import apsw

FILE_NAME = re.compile(r"(\d{4})_(pre|post)_[a-z0-9_]+\.sql")


def misnamed_migrations(folder: str, names: Sequence[str]) -> list[str]:
    """Migrations are named like `0007_pre_add_drain_deadline.sql`, from 1 without gap or double."""
    complaints = [
        f"{folder}/{name}:1: a migration is called like 0007_pre_add_drain_deadline.sql"
        for name in names
        if not FILE_NAME.fullmatch(name)
    ]
    numbers = sorted(int(name[:4]) for name in names if FILE_NAME.fullmatch(name))
    if not complaints and numbers != list(range(1, len(names) + 1)):
        complaints.append(f"{folder}:1: numbers go from 1 up without a gap, not {numbers}")
    return complaints


OWN = {
    ("horizon", "one"),
    ("horizon", "moved"),
    ("batch", "id"),
    ("batch", "at"),
    ("batch", "number"),
}
"""Columns that one database alone needs: how it numbers transactions and events."""


def columns_of(scripts: Sequence[str]) -> set[tuple[str, str]]:
    """(table, column) after these scripts, in whatever dialect; one column a line."""
    found: set[tuple[str, str]] = set()
    for script in scripts:
        bare = re.sub(r"--[^\n]*", "", script)
        for table, body in re.findall(r"CREATE TABLE (\w+) \(\n(.*?)\n\)", bare, flags=re.DOTALL):
            names = (re.match(r"    (\w+) +[A-Z]", line) for line in body.split("\n"))
            found |= {(table, name[1]) for name in names if name and name[1] != "PRIMARY"}
        found |= set(re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+) ", bare))
        gone = set(re.findall(r"DROP TABLE (\w+);", bare))
        found = {(table, column) for table, column in found if table not in gone}
    return found


def columns_in_sqlite(scripts: Sequence[str]) -> set[tuple[str, str]]:
    """(table, column) as SQLite has them after these scripts."""
    connection = apsw.Connection(":memory:")
    try:
        for script in scripts:
            connection.execute(script)
        rows = connection.execute(
            "SELECT t.name, c.name FROM sqlite_master t, pragma_table_info(t.name) c"
            " WHERE t.type = 'table'"
        ).fetchall()
    finally:
        connection.close()
    return {(str(table), str(column)) for table, column in rows}


def misread_columns(folder: str, scripts: Sequence[str]) -> list[str]:
    """What is read from the text of SQLite's migrations is what they make."""
    return [
        f"{folder}:1: {table}.{column} is read from the text, or made, but not both"
        for table, column in sorted(columns_of(scripts) ^ columns_in_sqlite(scripts))
    ]


def twin_differences(
    one: str, other: str, scripts: tuple[Sequence[str], Sequence[str]]
) -> list[str]:
    """Two databases have the same tables and columns, but for what each alone needs."""
    first, second = (columns_of(each) - OWN for each in scripts)
    return [
        f"{folder}:1: {table}.{column} is only in {other if folder == one else one}"
        for folder, missing in ((one, second - first), (other, first - second))
        for table, column in sorted(missing)
    ]
