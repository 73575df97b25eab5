"""The differences between files and agents, and the order in which they are resolved."""

import pytest

from tenure.faces.cli.differences import (
    Action,
    Difference,
    _difference,
    _owners_first,
    field_changes,
    matches,
    specs_of_files,
    waves,
)
from tenure.faces.cli.exits import CommandExit

SPEC = {"name": "a", "runtime": {"command": ["x"]}}


def agent(state="READY", **more):
    return {"name": "a", "state": state, "spec": {**SPEC, **more}}


@pytest.mark.parametrize(
    ("there", "action"),
    [
        (None, Action.CREATE),
        (agent(), Action.KEEP),
        (agent("SUSPENDED"), Action.KEEP),
        (agent("CREATE_FAILED"), Action.CREATE),
        (agent("DELETING"), Action.DIFFERS),
        (agent(owner="eve"), Action.DIFFERS),
    ],
)
def test_what_is_to_be_done_follows_from_spec_and_state(there, action):
    assert _difference(SPEC, there).action is action


def test_an_agent_that_differs_says_plainly_what_cannot_be_done():
    found = _difference(SPEC, agent(owner="eve"))
    assert found.note == "update is not supported yet; delete and create it"
    assert found.changes == ["owner: 'eve' → nothing"]


def test_a_difference_names_the_field_by_its_path():
    there = {"runtime": {"env": {"MODE": "slow", "A": "1"}}, "roles": ["a"]}
    here = {"runtime": {"env": {"MODE": "fast", "A": "1"}}, "roles": ["a", "b"], "owner": "x"}
    assert list(field_changes(there, here)) == [
        "runtime.env.MODE: 'slow' → 'fast'",
        "roles: ['a'] → ['a', 'b']",
        "owner: nothing → 'x'",
    ]


def one(name, parent=None):
    return Difference(name, Action.CREATE, {"name": name, **({"parent": parent} if parent else {})})


def test_owners_come_before_what_they_own():
    found = _owners_first([one("c", "b"), one("b", "a"), one("a"), one("d", "elsewhere")])
    assert [it.name for it in found] == ["a", "b", "c", "d"]
    assert [[it.name for it in wave] for wave in waves(found)] == [["a", "d"], ["b"], ["c"]]


def test_agents_that_own_each_other_are_refused():
    with pytest.raises(CommandExit, match="the parents form a cycle"):
        _owners_first([one("a", "b"), one("b", "a")])


def test_the_selector_asks_for_every_label():
    spec = {"labels": {"team": "ops", "tier": "1"}}
    assert matches(spec, {"team": "ops"})
    assert matches(spec, {})
    assert not matches(spec, {"team": "ops", "tier": "2"})
    assert not matches({}, {"team": "ops"})


def test_a_name_may_stand_in_one_document_only(tmp_path):
    text = "name: a\nruntime: {command: [x]}\n"
    (tmp_path / "one.yaml").write_text(text)
    (tmp_path / "two.yaml").write_text(text)
    with pytest.raises(CommandExit, match=r"two\.yaml: agent a is already in .*one\.yaml"):
        specs_of_files([str(tmp_path)], {})


def test_what_the_selector_passes_over_is_still_named_so_that_it_is_not_pruned(tmp_path):
    (tmp_path / "one.yaml").write_text("name: a\nruntime: {command: [x]}\n")
    specs, named = specs_of_files([str(tmp_path)], {"team": "ops"})
    assert (specs, named) == ([], {"a"})


def test_files_without_an_agent_are_refused(tmp_path):
    (tmp_path / "one.yaml").write_text("# nothing yet\n")
    with pytest.raises(CommandExit, match="it contains no agent"):
        specs_of_files([str(tmp_path)], {})
