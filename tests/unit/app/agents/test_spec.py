"""What an agent should be: read strictly, refused with a sentence that names the field."""

from typing import Any

import pytest

from tenure.app.agents.spec import read_spec, spec_to_dict
from tenure.core.errors import Invalid

WHOLE = {
    "name": "alpha",
    "owner": "a team",
    "labels": {"team": "blue"},
    "roles": ["reader"],
    "teams": ["blue"],
    "runtime": {
        "command": ["python3", "agent.py"],
        "zone": "here",
        "env": {"MODE": "quick"},
        "resources": {"memory_mib": 64},
        "network": {"egress": ["example.org"]},
        "ready_seconds": 5.0,
        "drain_seconds": 0.0,
    },
    "credentials": [{"audience": "https://tool", "scopes": ["a:b"], "ttl_seconds": 60}],
    "parent": "omega",
    "retention": "retain",
}
LEAST = {"name": "alpha", "runtime": {"command": ["agent"]}}


@pytest.mark.parametrize("tree", [WHOLE, LEAST])
def test_a_spec_is_read_and_written_as_it_was(tree):
    assert spec_to_dict(read_spec(tree)) == tree
    assert read_spec(spec_to_dict(read_spec(tree))) == read_spec(tree)


def change(path, value):
    tree = spec_to_dict(read_spec(WHOLE))
    at: Any = tree
    *folders, last = path
    for folder in folders:
        at = at[folder]
    at[last] = value
    return tree


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("nmae",), "x", "nmae: there is no such field; did you mean name?"),
        (("runtime", "comand"), [], "runtime.comand: there is no such field; did you mean com"),
        (("runtime", "resources", "memory"), 1, "did you mean memory_mib?"),
        (("credentials", 0, "scope"), [], "credentials[0].scope: there is no such field"),
        (("runtime", "network", "ingress"), [], "did you mean egress?"),
        (("zzz",), 1, "known are credentials, labels"),
        (("name",), "Alpha", "name: a name is small letters, digits and -"),
        (("name",), "alpha\n", "name: a name is small letters, digits and -"),
        (("name",), "a" * 64, "name: expected `str`"),
        (("name",), 7, "name: expected text; got `int`"),
        (("runtime", "kind"), "docker", "runtime.kind: invalid enum value 'docker'"),
        (("runtime", "protocol"), "grpc", "runtime.protocol: invalid enum value"),
        (("runtime", "ready_seconds"), 0, "runtime.ready_seconds: expected"),
        (("runtime", "ready_seconds"), 3_601, "runtime.ready_seconds: expected"),
        (("runtime", "env"), {"9": "x"}, "runtime.env: a variable is called by letters"),
        (("runtime", "image"), "x", "runtime: give a command or an image, and only one of them"),
        (("runtime", "command"), "x", "runtime.command: expected a list: [one, two]; got `str`"),
        (("credentials", 0, "scopes"), ["\n"], "credentials[0].scopes[0]: it has to match"),
        (("runtime", "command"), [], "runtime: give a command or an image"),
        (("credentials", 0, "ttl_seconds"), 901, "credentials[0].ttl_seconds: expected"),
        (("credentials", 0, "audience"), "tool", "credentials[0].audience: an https:// address"),
        (("credentials", 0, "audience"), "https://a@b", "credentials[0].audience: an https://"),
        (("credentials",), [{"audience": "https://a"}] * 2, "credentials: https://a is named tw"),
        (("owner",), "a\x1bb", "owner: it holds a character that cannot be shown"),
        (("owner",), "a" * 256, "owner: expected `str`"),
        (("retention",), "forget", "retention: invalid enum value"),
        (("labels",), {"": "x"}, "labels"),
        (("parent",), "-x", "parent: a name is"),
    ],
)
def test_what_is_odd_is_refused_with_its_path(path, value, sentence):
    with pytest.raises(Invalid) as refused:
        read_spec(change(path, value))
    assert sentence in str(refused.value)


@pytest.mark.parametrize("tree", [None, [], "x", 7, {}, {"name": "a"}, {"runtime": {}}])
def test_what_is_no_spec_at_all_is_refused(tree):
    with pytest.raises(Invalid):
        read_spec(tree)


def test_a_missing_field_is_named():
    with pytest.raises(Invalid, match="runtime"):
        read_spec({"name": "alpha"})


def test_what_is_nested_too_deeply_is_refused():
    deep: object = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Invalid):
        read_spec({"name": "alpha", "runtime": {"command": ["a"]}, "roles": deep})
