"""The audit chain: whatever is done to it afterwards is found, and the first bad entry named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.core.audit import BrokenChain, first_broken, link

LENGTH = 12


def chain(length=LENGTH):
    rows, previous = [], ""
    for position in range(1, length + 1):
        values = [position, "tenant", "someone", "agent.create", f"uid {position}", 0.5, "{}"]
        previous = link(previous, values)
        rows.append([*values, previous])
    return rows


def position_of(rows, **where):
    """The first bad entry."""
    found = first_broken(rows, **where)
    assert found is not None
    return found.position


def test_a_chain_that_nobody_touched_is_whole():
    assert first_broken(chain()) is None
    assert first_broken([]) is None


@given(st.integers(0, LENGTH - 1), st.integers(0, 7), st.sampled_from(["", "x", 7, 0.25, None]))
def test_an_edit_of_any_value_of_any_entry_is_found_there(number, column, value):
    rows = chain()
    if rows[number][column] == value:
        return
    rows[number][column] = value
    found = first_broken(rows)
    assert found is not None
    assert found.position in {number + 1, number + 2}


@given(st.integers(0, LENGTH - 2))
def test_a_removed_entry_is_found_by_its_number(number):
    rows = chain()
    del rows[number]
    found = first_broken(rows)
    assert found == BrokenChain(
        number + 1, f"entry {number + 1} is missing; {number + 2} stands there"
    )


@given(st.integers(0, LENGTH - 1))
def test_a_removed_entry_is_found_also_if_the_rest_is_numbered_anew(number):
    rows = chain()
    del rows[number]
    for position, row in enumerate(rows, 1):
        row[0] = position
    assert number == LENGTH - 1 or position_of(rows) == number + 1


@given(st.integers(0, LENGTH - 1), st.integers(0, LENGTH - 1))
def test_entries_that_changed_places_are_found(one, other):
    rows = chain()
    rows[one], rows[other] = rows[other], rows[one]
    if one != other:
        assert position_of(rows) == min(one, other) + 1
        rows[one][0], rows[other][0] = rows[other][0], rows[one][0]
        assert position_of(rows) == min(one, other) + 1


def test_an_inserted_entry_is_found():
    rows = chain()
    rows.insert(4, list(rows[4]))
    assert position_of(rows) == 6


def test_a_walk_goes_on_where_the_last_one_ended():
    rows = chain()
    head = rows[4][-1]
    assert first_broken(rows[5:], previous=head, position=5) is None
    assert position_of(rows[5:], previous="other", position=5) == 6


@pytest.mark.parametrize("values", [(1, "a,b", "c"), (1, "a", "b,c"), (1, 'a","b', "c")])
def test_no_two_rows_have_one_hash(values):
    every = [(1, "a,b", "c"), (1, "a", "b,c"), (1, 'a","b', "c"), (1, "a", "b", "c")]
    assert [other for other in every if link("", other) == link("", values)] == [values]
