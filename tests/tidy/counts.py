"""Counts what a clearer structure should make smaller: `python -m tests.tidy.counts [REVISION …]`.

Without a revision it counts the working tree.  Each revision is read from git, so that one command
prints before and after side by side.
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from tests.tidy import words
from tests.tidy.sources import Source

ROOT = Path(__file__).resolve().parents[2]
FLAT_FILES = 20
"""A folder with more Python files than this is flat: nobody finds a file in it at sight."""
DOMAIN = ("src/tenure/app/", "src/tenure/reconcilers/", "src/tenure/plans/", "src/tenure/delivery/")
HARNESS_IN_WHEEL = re.compile(
    r"src/tenure/testing/(?!contracts/|memory_store/|(?:__init__|fakes|faults|loop|operators|patches"
    r"|plans|proxy|server_fixtures|servers|shelf|temporal_server|tripwire)\.py)"
)

Files = Mapping[str, str]


def working_tree() -> Files:
    """The files that git tracks, as they lie here."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    paths = [ROOT / name for name in listed if name.endswith((".py", ".md"))]
    return {p.relative_to(ROOT).as_posix(): p.read_text("utf-8") for p in paths if p.is_file()}


def revision(name: str) -> Files:
    """The files of one commit."""
    packed = subprocess.run(
        ["git", "archive", "--format=tar", name], cwd=ROOT, capture_output=True, check=True
    ).stdout
    files = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if member.name.endswith((".py", ".md")) and (opened := archive.extractfile(member)):
                files[member.name] = opened.read().decode()
    return files


def sources(files: Files, *folders: str) -> list[Source]:
    return [
        Source(path, text)
        for path, text in sorted(files.items())
        if path.endswith(".py") and path.startswith(folders)
    ]


def string_subscripts(files: Files) -> int:
    """`row["column"]` in the domain: a misspelt column is found only at run time."""
    return sum(
        isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
        for source in sources(files, *DOMAIN)
        for node in source.nodes
    )


def converted_subscripts(files: Files) -> int:
    """`str(row["column"])`: a type that only the writer of the line knows."""
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "str"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Subscript)
        and isinstance(node.args[0].slice, ast.Constant)
        and isinstance(node.args[0].slice.value, str)
        for source in sources(files, *DOMAIN)
        for node in source.nodes
    )


def duplicate_class_names(files: Files) -> int:
    """Class names that occur more than once in src."""
    places = words.classes_by_name(sources(files, "src/"))
    return sum(len(found) > 1 for found in places.values())


def defined_names(source: Source) -> Iterator[str]:
    """Names of functions, classes and parameters."""
    for node in source.nodes:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.FunctionDef(name=name, args=args) | ast.AsyncFunctionDef(name=name, args=args):
                yield name
                yield from (one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs))
            case _:
                pass


def participle_names(files: Files) -> int:
    """Modules, classes, functions and parameters called by a bare participle."""
    chosen = sources(files, "src/", "proofs/", "tests/")
    modules = [PurePosixPath(one.path).stem for one in chosen]
    names = [name for one in chosen for name in defined_names(one)]
    return sum(words.is_participle(name) for name in (*modules, *names))


def participle_variables(files: Files) -> int:
    """The same of local variables, for comparison: these were left where they are clear."""
    found = 0
    for source in sources(files, "src/"):
        for node in source.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found += words.is_participle(node.id)
    return found


def files_in_flat_folders(files: Files) -> int:
    """Python files that share a folder with more than twenty others."""
    folders = Counter(
        str(PurePosixPath(path).parent)
        for path in files
        if path.endswith(".py") and path.startswith(("src/", "proofs/", "tests/"))
    )
    return sum(count for count in folders.values() if count > FLAT_FILES)


def glossary_words(files: Files) -> int:
    """Words that the glossary explains; several may share a row."""
    rows = [line for line in files["docs/glossary.md"].splitlines() if line.startswith("| ")]
    names = [row.split("|")[1].strip() for row in rows]
    return sum(len(name.split(" · ")) for name in names if name not in {"word", "----"})


def wide_cells(files: Files) -> int:
    """Cells of tables in the docs of more than 300 characters."""
    pages = {path: text for path, text in files.items() if path.endswith(".md")}
    return sum(len(list(words.wide_cells(path, text))) for path, text in pages.items())


def harness_lines(files: Files) -> int:
    """Lines of the proof harness, wherever it stands."""
    return sum(
        text.count("\n")
        for path, text in files.items()
        if path.endswith(".py") and (path.startswith("proofs/") or HARNESS_IN_WHEEL.match(path))
    )


def harness_lines_shipped(files: Files) -> int:
    """Of these, lines that are in the wheel."""
    return sum(
        text.count("\n")
        for path, text in files.items()
        if path.endswith(".py") and HARNESS_IN_WHEEL.match(path)
    )


COUNTS: tuple[Callable[[Files], int], ...] = (
    string_subscripts,
    converted_subscripts,
    duplicate_class_names,
    participle_names,
    participle_variables,
    files_in_flat_folders,
    glossary_words,
    wide_cells,
    harness_lines,
    harness_lines_shipped,
)


def main(revisions: list[str]) -> None:
    """Print one row for each count, one column for each revision and the working tree."""
    trees = [revision(name) for name in revisions] + [working_tree()]
    print(f"{'':24}" + "".join(f"{name[:10]:>12}" for name in (*revisions, "here")))
    for count in COUNTS:
        row = "".join(f"{count(tree):>12,}" for tree in trees)
        print(f"{count.__name__.replace('_', ' '):24}{row}")


if __name__ == "__main__":
    main(sys.argv[1:])
