"""Columns of text that travel as one text, against what PostgreSQL makes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.adapters.store.postgres.texts import MARKS, join_texts

COLUMNS = st.lists(st.none() | st.text(alphabet="a\x1e\x1f\ue000\ue001", max_size=3), min_size=1)


def taken_apart(text, separator, nothing):
    """As `string_to_array` has it, and then as the statement does."""
    parts = text.split(separator) if text else []
    return [None if part == nothing else part for part in parts] or [""]


@given(st.lists(COLUMNS, min_size=1, max_size=4))
def test_every_column_arrives_as_it_was(columns):
    separator, nothing, number, *texts = join_texts(
        [(1, None), *map(tuple, columns)], [False, *([True] * len(columns))]
    )
    assert number == (1, None)
    assert [taken_apart(text, separator, nothing) for text in texts] == columns


def test_marks_change_only_where_they_occur():
    assert join_texts([("a", None, "")], [True]) == [*MARKS, "a\x1f\x1e\x1f"]
    assert join_texts([("a\x1e",)], [True]) == ["\ue000", "\ue001", "a\x1e"]


def test_what_is_no_text_is_refused():
    with pytest.raises(TypeError):
        join_texts([("a", 1)], [True])
