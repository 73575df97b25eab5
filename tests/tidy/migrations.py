"""The house rule about databases: `schema.sql` is what the migrations add up to, for each of them.

A fresh store is made from the schema and an old one by the migrations; both must end in the same
tables. Only SQLite is asked here, because it needs no server: what is written for PostgreSQL is
read as text (`columns_of`), and a real server compares schema and migrations in tests/real.
"""

import re
from collections.abc import Mapping, Sequence

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


def schema_differences(folder: str, schema: str, migrations: Mapping[str, str]) -> list[str]:
    """The schema and the migrations, in the order of their names, make the same objects."""
    fresh = _objects([schema])
    grown = _objects([migrations[name] for name in sorted(migrations)])
    return [
        f"{folder}/schema.sql:1: {kind} {name} is {_shown(fresh, kind, name)} here "
        f"and {_shown(grown, kind, name)} by migrations"
        for kind, name in sorted(fresh.keys() | grown.keys())
        if fresh.get((kind, name)) != grown.get((kind, name))
    ]


OWN = {
    ("horizon", "one"), ("horizon", "moved"), ("batch", "id"), ("batch", "at"), ("batch", "number"),
}  # fmt: skip
"""Columns that one database alone needs: how it numbers transactions and events."""


def columns_of(schema: str) -> set[tuple[str, str]]:
    """(table, column) of every CREATE TABLE, in whatever dialect; one column a line."""
    found: set[tuple[str, str]] = set()
    bare = re.sub(r"--[^\n]*", "", schema)
    for table, body in re.findall(r"CREATE TABLE (\w+) \(\n(.*?)\n\)", bare, flags=re.DOTALL):
        for line in body.split("\n"):
            name = re.match(r"    (\w+) +[A-Z]", line)
            if name is not None and name[1] != "PRIMARY":
                found.add((table, name[1]))
    return found - OWN


def twin_differences(one: str, other: str, schemas: tuple[str, str]) -> list[str]:
    """Two databases have the same tables and columns, but for what each alone needs."""
    first, second = map(columns_of, schemas)
    return [
        f"{folder}/schema.sql:1: {table}.{column} is only in {other if folder == one else one}"
        for folder, missing in ((one, second - first), (other, first - second))
        for table, column in sorted(missing)
    ]


def _objects(scripts: Sequence[str]) -> dict[tuple[str, str], str]:
    connection = apsw.Connection(":memory:")
    try:
        for script in scripts:
            connection.execute(script)
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    finally:
        connection.close()
    return {(str(kind), str(name)): _normal(str(sql or "")) for kind, name, sql in rows}


def _normal(sql: str) -> str:
    """Returns SQL without comments, quotes around names and spaces that mean nothing."""
    sql = re.sub(r"--[^\n]*|/\*.*?\*/", " ", sql, flags=re.DOTALL)
    sql = re.sub(r"\s+", " ", re.sub(r'"(\w+)"', r"\1", sql))
    return re.sub(r" ?([(),=<>]) ?", r"\1", sql).strip()


def _shown(objects: Mapping[tuple[str, str], str], kind: str, name: str) -> str:
    found = objects.get((kind, name))
    return "absent" if found is None else f"[{found}]"
