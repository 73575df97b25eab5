"""The house rule about signposts: a page names only files and folders that are there.

As in `tests/tidy/checks.py`, a function returns its complaints, and what is checked is handed in.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatch

from tests.tidy.import_rules import ROOMS

TOPS = (*ROOMS, "src", "proofs", "tests", "bench", "examples", "agent", "docs")
NAMED = re.compile(rf"(?<![\w/.-])(?:{'|'.join(TOPS)})/[\w./<>{{}},|*-]*[\w>}}*]")


def gone_paths(page: str, text: str, paths: Sequence[str]) -> list[str]:
    """Every path on a page leads to a file or folder of the tree.

    A path begins with a top folder, or with a room of src/tenure. `<noun>`, `*`, `{a,b}` and `a|b`
    stand for any name. The ending `.py` may be left out, and so may what a module holds
    (`app/agents/commands.create_agent`).
    """
    known_paths = {*paths, *(path.rpartition("/")[0] for path in paths)}
    folders = {"/".join(path.split("/")[:depth]) for path in known_paths for depth in range(1, 9)}
    known_paths |= folders | {path.removesuffix(".py") for path in known_paths}
    complaints = []
    for line, words in enumerate(text.split("\n"), 1):
        bare = re.sub(r"\]\([^)]*\)|https?://\S+", " ", words)  # links have a test of their own
        complaints += [
            f"{page}:{line}: {name} is named here and gone"
            for name in NAMED.findall(bare)
            if not any(_leads(one, known_paths) for one in _spelled_out(name))
        ]
    return complaints


def _spelled_out(name: str) -> list[str]:
    """The patterns that a path stands for, from the root of the tree."""
    pattern = re.sub(r"<[^>]*>|\{[^}]*\}|\w+(?:\|\w+)+", "*", name.rstrip("/."))
    return [pattern, f"src/tenure/{pattern}"]


def _leads(pattern: str, known_paths: set[str]) -> bool:
    without_a_name = pattern.rpartition(".")[0] if "." in pattern.rpartition("/")[2] else pattern
    return any(fnmatch(path, one) for one in {pattern, without_a_name} for path in known_paths)
