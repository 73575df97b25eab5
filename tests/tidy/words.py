"""Rules of language, over source text: names, and the width of a table's cell.

As in `tests/tidy/checks.py`, a function returns its complaints, and what is checked is handed in.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from tests.tidy.sources import Source

CELL_CHARACTERS_MAX = 300

# Participles that do not end in "ed"; the others are told by their ending.
IRREGULAR = frozenset(
    [
        "asked",
        "begun",
        "born",
        "bound",
        "bought",
        "brought",
        "built",
        "caught",
        "chosen",
        "cut",
        "dealt",
        "done",
        "drawn",
        "driven",
        "fed",
        "felt",
        "found",
        "given",
        "gone",
        "got",
        "grown",
        "heard",
        "held",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "paid",
        "put",
        "read",
        "rung",
        "said",
        "seen",
        "sent",
        "set",
        "shown",
        "shut",
        "sought",
        "spoken",
        "spoilt",
        "stood",
        "struck",
        "sung",
        "sunk",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "understood",
        "woken",
        "won",
        "worn",
        "written",
    ]
)
# Nouns, verbs and words of the field that only look like participles.
NO_PARTICIPLE = frozenset(
    [
        "bed",
        "breed",
        "embed",
        "exceed",
        "feed",
        "led",
        "need",
        "proceed",
        "put",
        "read",
        "seed",
        "set",
        "shed",
        "shred",
        "speed",
        "succeed",
        "thread",
        "cut",
        "found",
        "unread",
    ]
)
# The endings of a call, and words of the field: HTTP's 401, and an engine in the same process.
ACCEPTED = frozenset({"Done", "Rejected", "Unauthenticated", "embedded"})

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def is_participle(name: str) -> bool:
    """Whether a name is one participle and nothing else."""
    words = [word.lower() for word in _WORDS.findall(name.strip("_"))]
    if len(words) != 1 or words[0] in NO_PARTICIPLE:
        return False
    return words[0] in IRREGULAR or words[0].endswith("ed")


def participle_modules(paths: Iterable[str]) -> list[str]:
    """No module or package is called by a bare participle."""
    return [
        f"{path}:1: {part} is a participle; a module is named by a noun"
        for path in paths
        for part in PurePosixPath(path).with_suffix("").parts
        if is_participle(part) and part not in ACCEPTED
    ]


def participle_classes(source: Source) -> list[str]:
    """No public class is called by a bare participle, but for the endings of a call."""
    return [
        source.complain(node.lineno, f"class {node.name} is a participle; name the thing")
        for node in source.nodes
        if isinstance(node, ast.ClassDef)
        and not node.name.startswith("_")
        and node.name not in ACCEPTED
        and is_participle(node.name)
    ]


def classes_by_name(sources: Sequence[Source]) -> dict[str, list[str]]:
    """Where each class is defined; private ones of one module are its own business."""
    places = defaultdict[str, list[str]](list)
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{source.path}:{node.lineno}")
    return places


def duplicate_classes(sources: Sequence[Source]) -> list[str]:
    """One class name is used once."""
    return [
        f"{places[1]}: class {name} is also defined at {places[0]}"
        for name, places in classes_by_name(sources).items()
        if len(places) > 1
    ]


def wide_cells(path: str, text: str) -> Iterator[str]:
    """A cell of a table has at most 300 characters."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            continue
        for cell in re.split(r"(?<!\\)\|", line)[1:-1]:
            if len(cell.strip()) > CELL_CHARACTERS_MAX:
                yield (
                    f"{path}:{number}: a cell of {len(cell.strip())} characters;"
                    f" {CELL_CHARACTERS_MAX} is the most"
                )
