"""Files are read strictly: what is not plainly meant is refused with the place and a sentence."""

import re
import string
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tenure.app.agents.spec import AgentSpec, Credential, Runtime
from tenure.faces.cli import files
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.output import as_yaml

AGENT = "name: a\nruntime: {command: [serve]}\n"


def trees(text, directory):
    return [one.tree for one in files.documents(text, "f.yaml", directory)]


def refusal_of(text, directory) -> str:
    with pytest.raises(CommandExit) as told:
        trees(text, directory)
    assert told.value.code is Exit.USAGE
    assert told.value.sentence.startswith("f.yaml")
    return told.value.sentence


def test_several_agents_stand_in_one_file_and_empty_documents_do_not_count(tmp_path):
    found = list(files.documents(f"---\n{AGENT}---\n---\nname: b\n", "f.yaml", tmp_path))
    assert [one.tree["name"] for one in found] == ["a", "b"]
    assert [one.source for one in found] == ["f.yaml, document 1", "f.yaml, document 2"]


def test_a_document_may_be_a_list_of_agents(tmp_path):
    assert trees('[{"name": "a"}, {"name": "b"}]', tmp_path) == [{"name": "a"}, {"name": "b"}]
    assert trees("[]", tmp_path) == []
    assert "document 2: an agent must be a mapping" in refusal_of("[{name: a}, b]", tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\nname: b\n", "line 2, column 1: the key 'name' occurs twice"),
        ("name: a\nruntime:\n  env:\n    A: x\n    A: y\n", "line 5, column 5: the key 'A'"),
        ("1: a\n", "a key must be text; put it in quotes"),
        ("? [a]\n: b\n", "a key must be text"),
        ("name: [a\n", "line 2"),
        ("- a\n", "an agent must be a mapping"),
        ("just words\n", "an agent must be a mapping"),
        ("name: !!python/object:os.system a\n", "could not determine a constructor"),
        ("name: *gone\n", "found undefined alias"),
        ("a: &a [*a]\n", "contains it"),
        ("a: \x07\n", "special characters"),
        ("a: " + "[" * 100 + "]" * 100, "nested more than 64 deep"),
        ("a: " + "[" * 1_000_000, "nested more than 64 deep"),
        ("\n".join(" " * n + "a:" for n in range(1_000)), "nested more than 64 deep"),
        ("a: " + "9" * 5_000, "digits"),
        ("a: " + "x" * files.BYTES_MAX, "longer than"),
    ],
)
def test_what_is_not_plainly_meant_is_refused_with_its_place(text, words, tmp_path):
    assert words in refusal_of(text, tmp_path)


def test_aliases_may_repeat_a_part_but_not_unfold_into_a_bomb(tmp_path):
    shared = "x: &e {A: b}\none: *e\ntwo:\n  <<: *e\n  C: d\n"
    assert trees(shared, tmp_path)[0]["two"] == {"A": "b", "C": "d"}
    bomb = "a0: &a0 [x, x]\n"
    bomb += "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    started = time.monotonic()
    assert "expands to more than 20000 values" in refusal_of(bomb, tmp_path)
    assert time.monotonic() - started < 30  # it would take years


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("1e5", "1e5"),
        (".inf", ".inf"),
        ("0x1F", "0x1F"),
        ("true", True),
        ("12", 12),
        ("-1", -1),
        ("1.5", 1.5),
        ("~", None),
        ("", None),
        ("'12'", "12"),
    ],
)
def test_words_mean_what_they_look_like(text, value, tmp_path):
    found = trees(f"a: {text}\n", tmp_path)[0]["a"]
    assert (found, type(found)) == (value, type(value))


LEAVES = (
    st.text(string.printable + "äß☃", max_size=12)
    | st.sampled_from(["yes", "on", "010", "1e5", "12:30", "~", "null", "<<", "=", "1.", ".5"])
    | st.integers(-(10**9), 10**9)
    | st.booleans()
    | st.floats(-1e6, 1e6, allow_nan=False)
)
TREES = st.dictionaries(
    st.sampled_from(["a", "b", "yes", "1", "null"]),
    st.recursive(
        LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(string.ascii_letters, max_size=4), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    min_size=1,
)


@given(TREES)
def test_what_is_written_as_yaml_is_read_back_the_same(tree):
    loader = files.Strict(as_yaml(tree))
    assert loader.get_single_data() == tree


def test_only_a_script_that_is_no_file_here_is_told_of(tmp_path):
    script = tmp_path / "agent.py"
    script.touch()
    for runtime in (
        {"command": ["python3", str(script)]},
        {"command": ["python3", "agent.py"], "bundle": "/srv"},
        {"command": ["serve", "--as=x.py", "words"]},
        {"command": ["sh", "-c", "exec python3 /srv/agent.py"]},
        {"command": ["sh", "-ec", "exec python3 /srv/agent.py"]},
        {"command": ["sh", "-c", "/srv/agent.py"]},
        {"image": "agent"},
    ):
        assert files.missing_scripts({"runtime": runtime}) == []
    told = [f"command: {script}.py is not a file here"]
    assert files.missing_scripts({"runtime": {"command": ["python3", f"{script}.py"]}}) == told


def test_unknown_keys_are_refused_with_the_nearest_known_one():
    with pytest.raises(
        CommandExit, match=r"f\.yaml: runtime\.comand: there is no such field; did you"
    ):
        files.check({"name": "a", "runtime": {"comand": ["x"]}}, source="f.yaml")


def test_a_number_where_text_belongs_is_refused_with_what_to_do():
    tree = {"name": "a", "runtime": {"command": ["x"], "env": {"PORT": 80}}}
    with pytest.raises(CommandExit, match="put it in quotes"):
        files.check(tree, source="f.yaml")


def test_what_is_left_at_its_default_is_no_part_of_the_spec():
    tree = {"name": "a", "runtime": {"command": ["x"], "kind": "process"}, "labels": {}}
    assert files.check(tree, source="f") == {"name": "a", "runtime": {"command": ["x"]}}


def command_of(command, directory, **more):
    tree = {"name": "a", "runtime": {"command": command, **more}}
    return files.resolve_paths(tree, directory)["runtime"]


def test_relative_paths_are_meant_from_the_files_directory(tmp_path):
    (tmp_path / "agent.py").write_text("")
    (tmp_path / "-c").write_text("")
    (tmp_path / "serve").write_text("")
    made = command_of(["python3", "agent.py", "-c", "./gone", "../up", "x"], tmp_path)
    assert made["command"] == [
        "python3",
        f"{tmp_path}/agent.py",
        "-c",
        f"{tmp_path}/gone",
        f"{tmp_path.parent}/up",
        "x",
    ]
    assert command_of(["bin/serve"], tmp_path)["command"] == [f"{tmp_path}/bin/serve"]
    assert command_of(["serve"], tmp_path)["command"] == ["serve"], "found on the search path"
    assert command_of(["/bin/true", "/x"], tmp_path)["command"] == ["/bin/true", "/x"]


def test_with_a_bundle_the_command_is_meant_inside_it(tmp_path):
    (tmp_path / "agent.py").write_text("")
    made = command_of(["./serve", "agent.py"], tmp_path, bundle="app")
    assert made == {"command": ["./serve", "agent.py"], "bundle": f"{tmp_path}/app"}


@pytest.mark.parametrize("command", ["text", None, [1, None], [], ["", "a\0b", "x" * 10_000]])
def test_an_odd_command_is_left_for_the_check(command, tmp_path):
    assert command_of(command, tmp_path)["command"] == command


def test_a_directory_is_its_yaml_files_by_name_and_may_not_be_empty(tmp_path):
    with pytest.raises(CommandExit, match="no file here ends in"):
        files.read(str(tmp_path))
    (tmp_path / "b.yml").write_text("name: b\n")
    (tmp_path / "a.json").write_text('{"name": "a"}')
    (tmp_path / "notes.txt").write_text("no: agent")
    (tmp_path / "c.yaml").mkdir()
    assert [one.tree["name"] for one in files.read(str(tmp_path))] == ["a", "b"]


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(CommandExit, match=r"gone\.yaml: it cannot be read: No such file"):
        files.read(str(tmp_path / "gone.yaml"))
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(CommandExit, match="not UTF-8"):
        files.read(str(tmp_path / "a.yaml"))


def test_the_loader_of_the_library_is_left_as_it_was():
    assert yaml.safe_load("a: yes") == {"a": True}


def test_the_file_of_the_howto_and_the_example_are_sound():
    root = Path(__file__).resolve().parents[4]
    page = (root / "docs" / "howto" / "declarative-files.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (document,) = files.documents(block, "page", root)
    assert files.check(document.tree, source="page")["name"] == "notes"
    example = root / "examples" / "02_agent"
    (document,) = files.read(str(example / "agent.yaml"))
    spec = files.check(document.tree, source="example")
    assert spec["runtime"]["command"] == ["python3", str(example / "agent.py")]
    for part in (AgentSpec, Runtime, Credential):
        for field in part.__struct_fields__:
            assert re.search(rf"\b{field}\b", page), field
