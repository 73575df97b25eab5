"""The inbox: each event once, in the consumer's own transaction, in whatever order they come."""

import inspect
import random
import sqlite3
import sys

import pytest

from tenure_agent import Inbox, Outcome, inbox, webhook


def event(agent="a", sequence=1, name=None):
    return {
        "source": "urn:tenure:local",
        "id": name or f"{agent}-{sequence}",
        "subject": agent,
        "sequence": f"{sequence:020}",
        "time": f"2026-11-17T08:00:{sequence % 60:02}",
    }


@pytest.fixture
def connection(tmp_path):
    made = sqlite3.connect(tmp_path / "mine.db")
    made.execute("CREATE TABLE done (agent TEXT, sequence INTEGER)")
    made.commit()
    yield made
    made.close()


def work(connection, event_body):
    connection.execute(
        "INSERT INTO done VALUES (?, ?)", (event_body["subject"], int(event_body["sequence"]))
    )


def applied_events(connection):
    return connection.execute("SELECT agent, sequence FROM done").fetchall()


def test_a_copy_is_applied_once(connection):
    box = Inbox(connection)
    assert box.apply(event(), work) is Outcome.APPLIED
    assert box.apply(event(), work) is Outcome.DUPLICATE
    assert Inbox(connection).apply(event(), work) is Outcome.DUPLICATE
    assert applied_events(connection) == [("a", 1)]


def test_what_is_older_than_the_last_of_its_agent_is_ignored(connection):
    box = Inbox(connection)
    assert box.apply(event(sequence=3), work) is Outcome.APPLIED
    assert box.apply(event(sequence=2), work) is Outcome.OLD
    assert box.apply(event("b", 2), work) is Outcome.APPLIED
    assert box.apply(event(sequence=4), work) is Outcome.APPLIED
    assert applied_events(connection) == [("a", 3), ("b", 2), ("a", 4)]


def test_work_that_fails_leaves_nothing_and_can_be_done_again(connection):
    def fails(connection, event_body):
        work(connection, event_body)
        raise ZeroDivisionError

    box = Inbox(connection)
    with pytest.raises(ZeroDivisionError):
        box.apply(event(), fails)
    assert applied_events(connection) == []
    assert box.apply(event(), work) is Outcome.APPLIED


def test_it_can_be_a_part_of_a_transaction_that_is_open(connection):
    box = Inbox(connection)
    connection.execute("INSERT INTO done VALUES ('before', 0)")
    assert connection.in_transaction
    assert box.apply(event(), work) is Outcome.APPLIED
    connection.rollback()
    assert applied_events(connection) == []
    assert box.apply(event(), work) is Outcome.APPLIED
    assert not connection.in_transaction
    assert applied_events(connection) == [("a", 1)]


def test_consumers_of_one_database_are_told_apart(connection):
    assert Inbox(connection, consumer="x").apply(event(), work) is Outcome.APPLIED
    assert Inbox(connection, consumer="y").apply(event(), work) is Outcome.APPLIED


def test_what_is_forgotten_is_still_old(connection):
    box = Inbox(connection)
    for sequence in range(1, 5):
        box.apply(event(sequence=sequence), work)
    assert box.forget("2026-11-17T08:00:04") == 3
    assert box.apply(event(sequence=2), work) is Outcome.OLD
    assert box.apply(event(sequence=4), work) is Outcome.DUPLICATE


@pytest.mark.parametrize("seed", range(50))
def test_copies_and_any_order_never_repeat_and_never_go_back(connection, seed):
    chance = random.Random(seed)
    events = [event(agent, sequence) for agent in "abc" for sequence in range(1, 9)] * 3
    chance.shuffle(events)
    box = Inbox(connection)
    for one in events:
        box.apply(one, work)
    for agent in "abc":
        mine = [sequence for name, sequence in applied_events(connection) if name == agent]
        assert mine == sorted(set(mine))
        assert mine[-1] == 8


def test_it_needs_the_standard_library_alone():
    for module in (inbox, webhook):
        lines = inspect.getsource(module).splitlines()
        imports = [line for line in lines if line.startswith(("import ", "from "))]
        named = {line.split()[1].partition(".")[0] for line in imports}
        assert named
        assert named <= set(sys.stdlib_module_names)
