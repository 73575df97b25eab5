"""Reads files with the specs of agents, strictly, before anything is sent.

A file is YAML (JSON included) with one agent in each document, or a list of agents.  Only numbers,
`true`, `false` and `null` are not text: `yes`, `on`, `010`, `2026-01-01` and `12:30` are text.
Duplicate keys are refused, and so are aliases that expand to very many values.  Relative paths are
relative to the directory of the file.
"""

import os
import re
import sys
from collections.abc import Hashable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tenure.faces.cli.exits import CommandExit, Exit

BYTES_MAX = 1 << 20
NODES_MAX = 20_000
"""The maximum of values in one document, with all aliases expanded."""
DEPTH_MAX = 64
ENDINGS: Final = (".yaml", ".yml", ".json")
STANDARD_INPUT: Final = "-"
COMMAND_LINE: Final = "the command line"
"""The source of a spec that was not read from a file."""
SCRIPTS: Final = (".py", ".js", ".mjs", ".cjs", ".ts", ".sh", ".rb", ".pl", ".php", ".jar")
"""File name endings of scripts."""
MERGE = "tag:yaml.org,2002:merge"


class AgentDocument(NamedTuple):
    """One agent of a file, its paths made absolute."""

    source: str
    """The file, and the number of the document if there are several."""
    tree: dict[str, Any]


class Strict(yaml.SafeLoader):
    """A loader of plain data by the rules of this module."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (a class attribute by its design)

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Compose a node; refuse deep nesting while parsing."""
        if self.depth > DEPTH_MAX:
            raise yaml.composer.ComposerError(
                problem=f"it is nested more than {DEPTH_MAX} deep",
                problem_mark=self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 (as its parent)
        """Construct a mapping whose keys are text and unique."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == MERGE:
                continue
            if not isinstance(key, yaml.ScalarNode) or not isinstance(
                self.construct_object(key), str
            ):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be text; put it in quotes", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key.value!r} occurs twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+][0-9]+)?", "-+0123456789"),
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("merge", r"(?:<<)", ["<"]),
):
    Strict.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"{_pattern}\\Z"), list(_first)
    )


def read(source: str) -> list[AgentDocument]:
    """Every agent in a file, in the files of a directory, or on standard input."""
    if source == STANDARD_INPUT:
        return list(documents(sys.stdin.read(BYTES_MAX + 1), "standard input", Path.cwd()))
    path = Path(source)
    if not path.is_dir():
        return list(_file(path))
    found = sorted(one for one in path.iterdir() if one.suffix in ENDINGS and one.is_file())
    if not found:
        raise file_error(source, f"no file here ends in {', '.join(ENDINGS)}")
    return [document for one in found for document in _file(one)]


def _file(path: Path) -> Iterator[AgentDocument]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(BYTES_MAX + 1)
    except UnicodeDecodeError:
        raise file_error(str(path), "it is not UTF-8") from None
    except OSError as error:
        raise file_error(str(path), f"it cannot be read: {error.strerror}") from None
    yield from documents(text, str(path), path.absolute().parent)


def documents(text: str, source: str, directory: Path) -> Iterator[AgentDocument]:
    """All agents in a text; empty documents are skipped."""
    if len(text) > BYTES_MAX:
        raise file_error(source, f"it is longer than {BYTES_MAX} characters")
    try:
        found = [tree for tree in _trees(text) if tree is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise file_error(source, f"{where}{error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise file_error(source, " ".join(str(error).split())) from None
    except ValueError as error:  # a number with too many digits
        raise file_error(source, str(error)) from None
    trees = [one for tree in found for one in (tree if isinstance(tree, list) else [tree])]
    for number, tree in enumerate(trees, 1):
        name = f"{source}, document {number}" if len(trees) > 1 else source
        if not isinstance(tree, dict):
            raise file_error(name, "an agent must be a mapping with a name")
        yield AgentDocument(name, resolve_paths(tree, directory))


def _trees(text: str) -> Iterator[Any]:
    loader = Strict(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                _count_values(node, {})
                yield loader.construct_document(node)
    finally:
        loader.dispose()


def _count_values(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values of a node with aliases expanded; an error if too many or cyclic."""

    def refuse(why: str) -> yaml.MarkedYAMLError:
        return yaml.MarkedYAMLError(problem=why, problem_mark=node.start_mark)

    if id(node) in known:
        if known[id(node)] == 0:
            raise refuse("an alias refers to a value that contains it")
        return known[id(node)]
    known[id(node)] = 0
    size = 1
    if isinstance(node, yaml.SequenceNode):
        size += sum(_count_values(child, known) for child in node.value)
    elif isinstance(node, yaml.MappingNode):
        size += sum(_count_values(one, known) for pair in node.value for one in pair)
    if size > NODES_MAX:
        raise refuse(f"it expands to more than {NODES_MAX} values")
    known[id(node)] = size
    return size


# ----------------------------------------------------------------------------- paths and checks


def resolve_paths(tree: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """The same agent with paths relative to this directory made absolute.

    Paths are its bundle or, without one, every part of its command that starts with `./` or `../`,
    the program if it is a path, and each argument that names a file there.
    """
    resolved_tree = dict(tree)
    runtime = resolved_tree.get("runtime")
    if not isinstance(runtime, dict):
        return resolved_tree
    runtime = resolved_tree["runtime"] = dict(runtime)
    bundle, command = runtime.get("bundle"), runtime.get("command")
    if isinstance(bundle, str) and bundle:
        runtime["bundle"] = _absolute(bundle, directory)
    elif isinstance(command, list):
        runtime["command"] = [
            _absolute(part, directory) if _is_path(part, number, directory) else part
            for number, part in enumerate(command)
        ]
    return resolved_tree


def _absolute(part: str, directory: Path) -> str:
    return os.path.normpath(directory / part)


def _is_path(part: object, number: int, directory: Path) -> bool:
    if not isinstance(part, str) or not part or "\0" in part or part.startswith("/"):
        return False
    if part.startswith(("./", "../")):
        return True
    if number == 0:
        return "/" in part
    return not part.startswith("-") and os.path.isfile(directory / part)  # noqa: PTH113 (long names are no error)


def missing_scripts(spec: Mapping[str, Any]) -> list[str]:
    """A warning if the script of a resolved command is not a file on this machine.

    The agent may write the script itself, or it may be on the server, so this is no error.
    """
    runtime = spec["runtime"]
    for before, part in pairwise(() if runtime.get("bundle") else runtime.get("command", ())):
        is_program_text = before == "-c" or any(character.isspace() for character in part)
        if part.endswith(SCRIPTS) and not part.startswith("-") and not is_program_text:
            if not part.startswith("/"):
                own = "the agent would search it in its own directory, which is empty at first"
                return [f"command: {part} is not a file here; {own}"]
            return [] if os.path.isfile(part) else [f"command: {part} is not a file here"]  # noqa: PTH113 (long names are no error)
    return []


def check(tree: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """The spec in the form that the server stores; CommandExit that names an invalid field."""
    from tenure.app.agents import spec
    from tenure.core.errors import Invalid

    try:
        return spec.spec_to_dict(spec.read_spec(dict(tree)))
    except Invalid as error:
        text = str(error)
        hint = "; put it in quotes" if "expected text; got `" in text else ""
        raise file_error(source, text + hint) from None


def file_error(source: str, why: str) -> CommandExit:
    """The refusal of a file."""
    wrong = "command" if source == COMMAND_LINE else "file"
    advice = f"nothing was sent: correct the {wrong}, then run the command again"
    return CommandExit(Exit.USAGE, f"{source}: {why}", advice=advice)
