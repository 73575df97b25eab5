"""What is read from folders: queries by name, migrations in order; and what they make of a file."""

import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from tenure.adapters.store import sqlite
from tenure.core.records import TABLES
from tenure.sqlite.migrations import Migration, last_migration, migrate, read_migrations
from tenure.sqlite.queries import read_queries
from tenure.testing.memory_store.tables import NULLABLE

STORE = Path(sqlite.__file__).parent


def test_queries_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "b.sql").write_text(
        "-- name: two\n-- It says\n-- two things.\nSELECT 2\n", encoding="utf-8"
    )
    (tmp_path / "a.sql").write_text(
        "-- The file.\n\n-- name: one\n-- It says one.\nSELECT 1 -- one\n\n"
        "-- name: zero\n-- It says zero.\nSELECT 0\n",
        encoding="utf-8",
    )
    assert read_queries(tmp_path) == {
        "one": "SELECT 1 -- one",
        "zero": "SELECT 0",
        "two": "SELECT 2",
    }


@pytest.mark.parametrize(
    "text",
    [
        "-- name: one\n-- Once.\nSELECT 1\n-- name: one\n-- Twice.\nSELECT 1\n",
        "-- name: one\n-- A sentence.\nSELECT 1\n-- name: two\nSELECT 2\n",
        "-- name: one\n-- A sentence.\n\n-- name: two\n-- A sentence.\nSELECT 2\n",
    ],
)
def test_a_block_without_a_sentence_or_with_anothers_name_is_a_mistake(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "a.sql").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.sql"):
        read_queries(tmp_path)


def test_migrations_are_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "0002_post_more.sql").write_text("B", encoding="utf-8")
    (tmp_path / "0001_pre_first.sql").write_text("A", encoding="utf-8")
    assert read_migrations(tmp_path) == [
        Migration(1, "0001_pre_first", "A"),
        Migration(2, "0002_post_more", "B"),
    ]


@pytest.mark.parametrize(
    "name", ["0002_pre_hole.sql", "0001_during_x.sql", "1_pre_x.sql", "0001_pre_X.sql", "notes.txt"]
)
def test_a_hole_or_another_name_is_a_mistake(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("", encoding="utf-8")
    with pytest.raises(ValueError, match="migration 0001"):
        read_migrations(tmp_path)


def test_a_migration_is_applied_whole_once_with_its_number() -> None:
    file = apsw.Connection("")
    first, second = (
        Migration(1, "first", "CREATE TABLE a (x); CREATE TABLE b (x)"),
        Migration(2, "second", "DROP TABLE b"),
    )
    assert migrate(file, [first]) == ["first"]
    assert migrate(file, [first, second]) == ["second"]
    assert migrate(file, [first, second]) == []
    assert file.pragma("user_version") == 2
    assert file.execute("SELECT name FROM sqlite_schema").fetchall() == [("a",)]
    file.close()


def test_a_migration_that_only_adds_leaves_the_file_open_to_code_that_lacks_it() -> None:
    file = apsw.Connection("")
    first = Migration(1, "0001_pre_first", "CREATE TABLE a (x)")
    adds = Migration(2, "0002_pre_adds", "-- Only adds: y.\nALTER TABLE a ADD COLUMN y TEXT")
    third = Migration(3, "0003_post_third", "DROP TABLE a")
    assert migrate(file, [first, adds]) == ["0002_pre_adds", "0001_pre_first"][::-1]
    assert (file.pragma("user_version"), last_migration(file)) == (1, 2)
    assert migrate(file, [first]) == [], "the release before goes on"
    assert migrate(file, [first, adds]) == []
    assert migrate(file, [first, adds, third]) == ["0003_post_third"]
    assert (file.pragma("user_version"), last_migration(file)) == (3, 3)
    file.close()


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE a",
        "CREATE UNIQUE INDEX i ON a (x)",
        "UPDATE a SET x = 1",
        "ALTER TABLE a ADD COLUMN y TEXT NOT NULL",
        "ALTER TABLE a DROP COLUMN x",
        "CREATE TABLE b (x); DROP TABLE a",
    ],
)
def test_a_migration_that_says_it_only_adds_is_held_to_it(tmp_path: Path, sql: str) -> None:
    (tmp_path / "0001_pre_x.sql").write_text(f"-- Only adds: x.\n{sql};\n", encoding="utf-8")
    with pytest.raises(ValueError, match="does more than add"):
        read_migrations(tmp_path)


@pytest.mark.parametrize(
    "sql", ["CREATE TABLE b (x); CREATE TABLE a (x)", "CREATE TABLE b (x); ROLLBACK; CREATE"]
)
def test_a_migration_that_fails_leaves_nothing(sql: str) -> None:
    file = apsw.Connection("")
    migrate(file, [Migration(1, "first", "CREATE TABLE a (x)")])
    with pytest.raises(apsw.SQLError):
        migrate(file, [Migration(1, "first", ""), Migration(2, "bad", sql)])
    assert file.pragma("user_version") == 1
    assert not file.in_transaction
    assert file.execute("SELECT name FROM sqlite_schema").fetchall() == [("a",)]
    file.close()


def test_the_stores_tables_are_what_the_port_names() -> None:
    """SELECT * relies on the order, the store in memory on which columns may be empty."""
    file = apsw.Connection("")
    migrate(file, read_migrations(STORE / "migrations"))
    for table, shape in TABLES.items():
        found = file.execute(
            'SELECT name, "notnull", pk FROM pragma_table_info(?)', (table,)
        ).fetchall()
        assert tuple(name for name, _, _ in found) == shape.key + shape.columns
        assert tuple(name for name, _, pk in found if pk) == shape.key
        assert {name for name, strict, pk in found if not strict and not pk} == NULLABLE.get(
            table, frozenset()
        )
    file.close()


def test_no_query_looks_at_every_row_of_a_table_that_grows() -> None:
    file = apsw.Connection("")
    migrate(file, read_migrations(STORE / "migrations"))
    for name, sql in read_queries(STORE / "queries").items():
        # What is bound does not matter to the plan, only that it is.
        plan: list[Any] = file.execute(
            f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?") or Anything()
        ).fetchall()
        scans = [
            detail
            for *_, detail in plan
            if re.match(r"SCAN (operation|intent|journal|outbox)\b", detail)
        ]
        assert not [scan for scan in scans if "INDEX operation_open" not in scan], (name, plan)
    file.close()


class Anything(dict[str, int]):
    """Has every name."""

    def __missing__(self, name: str) -> int:
        return 1
