"""The house rules, one function each, over source text and paths.

A function returns its complaints, each a line such as `src/tenure/core/saga.py:7: core may not
import os`; an empty list means that the rule holds. What is checked is handed in, so that a bad
snippet can be handed in as well. The rules about imports are in
`tests/tidy/import_rules.py`, about databases in `tests/tidy/migrations.py`; which
files the rules are held against is in `tests/tidy/test_house_rules.py`.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from tests.tidy.import_rules import ROOMS
from tests.tidy.sources import Source, imports, is_within

LINES_MAX = 500
FUNCTION_LINES_MAX = 70
ENTRANCES = ("src/tenure/__init__.py", "src/tenure/__main__.py", "proofs/__init__.py")
BANNED_NAMES = frozenset(
    {"utils", "helpers", "common", "base", "misc", "types", "manager", "service"}
)

# Where the same seed must give the same run, these would break it.
DETERMINISTIC = (
    "src/tenure/core/",
    "src/tenure/app/",
    "src/tenure/adapters/engine/",
    "src/tenure/adapters/store/",
)
ORDERED_WAITS = ("src/tenure/app/", "src/tenure/adapters/engine/")
BANNED_CALLS = re.compile(
    r"time\.time(_ns)?"
    r"|datetime\.(datetime\.(now|utcnow|today)|date\.today)"
    r"|(random|uuid|secrets)\.\w+(\.\w+)*"
    r"|os\.(urandom|getrandom)"
)

ASKS_TIME = re.compile(
    r"\bcurrent_(?:timestamp|date|time)\b|\blocaltime(?:stamp)?\b"
    r"|(?<![\w.])(?:now|(?:clock|statement|transaction)_timestamp)\s*\(\s*\)"
    r"|(?<![\w.])(?:unixepoch|julianday|datetime|date|time)\s*\(\s*\)"
    r"|\b(?:strftime|unixepoch|julianday|datetime|date|time|timediff)\s*\([^()]*['\"]now['\"]",
    re.IGNORECASE,
)

# Written in pieces, because this file too may not hold what it looks for.
HOST_NAMES = tuple(
    ".".join(name)
    for name in (
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("deb", "debian", "org"),
    )
)
MACHINE_PATHS = re.compile(r"(?<![\w.$}])/(?:work|root|opt/pypi\S*|opt/wheels)/")


def overlong(source: Source) -> list[str]:
    """A file has at most 500 lines and a function at most 70."""
    complaints = []
    count = len(source.text.splitlines())
    if count > LINES_MAX:
        complaints.append(source.complain(count, f"{count} lines; {LINES_MAX} is the most"))
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                sentence = f"{node.name} has {count} lines; {FUNCTION_LINES_MAX} is the most"
                complaints.append(source.complain(node.lineno, sentence))
    return complaints


def banned_names(paths: Iterable[str]) -> list[str]:
    """No file or folder has a name that says nothing."""
    return [
        f"{path}:1: {part} is a name that says nothing"
        for path in paths
        for part in PurePosixPath(path).parts
        if PurePosixPath(part).stem.strip("_") in BANNED_NAMES
    ]


def misnamed_reads(source: Source) -> list[str]:
    """What is called `get` raises NotFound, what is called `find` answers None; click has `get`."""
    complaints = []
    for node in source.nodes:
        if source.room == "faces" or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        raised = [one.exc for one in ast.walk(node) if isinstance(one, ast.Raise) and one.exc]
        absent = any(ast.unparse(one).startswith("NotFound") for one in raised)
        if node.name.startswith("find") and absent:
            sentence = f"{node.name} raises NotFound: such a read is called get_…"
            complaints.append(source.complain(node.lineno, sentence))
        if node.name.startswith("get") and node.returns and "None" in ast.unparse(node.returns):
            sentence = f"{node.name} can answer None: such a read is called find_…"
            complaints.append(source.complain(node.lineno, sentence))
    return complaints


def open_markers(path: str, text: str) -> list[str]:
    """Nothing is left to be done later in a comment."""
    return [
        f"{path}:{number}: {found[0]} belongs in an issue"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := re.search(r"\b(?:FIXME|TODO)\b", line))
    ]


def _is_verb(source: Source) -> bool:
    """Whether this is a verb, which is found by its declaration and not imported by name."""
    return source.module.startswith("tenure.plans.agents.") and any(
        isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VERB"
        for node in source.tree.body
    )


def dead_modules(sources: Sequence[Source], users: Iterable[Source], notes: str) -> list[str]:
    """Every module is imported by another file, or named in a string there or in the notes.

    A verb of the agent lifecycle is used by being there: `plans/agents/lifecycle.py` looks for it.
    The notes are what starts modules without importing them: the Makefile and the scripts of
    pyproject.toml.
    """
    modules = {source.module for source in sources}
    uses = {("", name) for name in re.findall(r"\b(?:tenure|proofs)(?:\.\w+)+", notes)}
    for user in (*sources, *users):
        named = (name for _, name in imports(user))
        uses |= {(user.module, name) for name in named if name.startswith(("tenure", "proofs"))}
        uses |= {
            (user.module, node.value)
            for node in user.nodes
            if isinstance(node, ast.Constant) and node.value in modules
        }
    return [
        source.complain(1, f"nothing imports or runs {source.module}")
        for source in sources
        if source.path not in ENTRANCES
        and not _is_verb(source)
        # To import something of a module or a package is to use it, unless done from within.
        and not any(
            is_within(name, source.module) and not is_within(user, source.module)
            for user, name in uses
        )
    ]


def docstrings(source: Source) -> Iterator[tuple[int, str]]:
    """Yields the line and the text of every docstring of the file."""
    for node in source.nodes:
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if text := ast.get_docstring(node, clean=False):
                    yield node.body[0].lineno, text
            case _:
                pass


def missing_docstring(source: Source) -> list[str]:
    """Every module opens with what lives in it."""
    if (ast.get_docstring(source.tree) or "").strip():
        return []
    return [source.complain(1, "the module has no docstring")]


def gone_names(source: Source, sources: Sequence[Source], paths: Iterable[str]) -> list[str]:
    """A docstring names only modules and files that are there.

    Names are dotted (`tenure.core.saga`, or `core.saga` in backticks) or paths ending in .py.
    """
    texts = {s.module: s.text for s in sources}
    known = tuple("/" + path for path in paths)
    rooms = "|".join(ROOMS)
    complaints = []
    for line, text in docstrings(source):
        dotted = re.findall(r"(?<![\w.])tenure(?:\.\w+)+", text)
        short = re.findall(rf"`((?:{rooms})(?:\.\w+)+)(?:\(.*?\))?`", text)
        dotted += [f"tenure.{name}" for name in short if not name.endswith(".py")]
        files = re.findall(r"`([\w./-]+\.py)`", text)
        tops = f"{rooms}|src|proofs|tests|bench|examples"
        files += re.findall(rf"(?<![\w/`.-])(?:{tops})/[\w/]+\.py\b", text)
        gone = [name for name in dotted if not _is_there(name, texts)]
        gone += [name for name in files if not any(p.endswith("/" + name) for p in known)]
        complaints += [source.complain(line, f"{name} is named here and gone") for name in gone]
    return complaints


def _is_there(name: str, texts: dict[str, str]) -> bool:
    """A dotted name is a module, a package, or a module and then a word which that module says."""
    if any(is_within(module, name) for module in texts):
        return True
    owner, _, word = name.rpartition(".")
    while owner and owner not in texts:
        owner, _, word = owner.rpartition(".")
    return bool(owner) and re.search(rf"\b{word}\b", texts[owner]) is not None


def sql_asking_time(path: str, text: str) -> list[str]:
    """SQL is given the time and never asks for it; held against an .sql file, comments aside."""
    bare = re.sub(r"--[^\n]*", "", text)
    return [
        f"{path}:{bare.count(chr(10), 0, found.start()) + 1}: SQL asks the time with {found[0]!r}"
        for found in ASKS_TIME.finditer(bare)
    ]


def literals_asking_time(source: Source) -> list[str]:
    """The same for SQL written as a string in a Python file; docstrings are prose."""
    prose = {
        id(node.value)
        for node in source.nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        source.complain(node.lineno, f"SQL asks the time with {found[0]!r}")
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        for found in ASKS_TIME.finditer(node.value)
    ]


def _names(source: Source) -> dict[str, str]:
    """Returns what each imported local name stands for: `dt` → `datetime.datetime`."""
    names = {}
    for node in source.nodes:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    first = alias.name.partition(".")[0]
                    names[alias.asname or first] = alias.name if alias.asname else first
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                for alias in aliases:
                    names[alias.asname or alias.name] = f"{module}.{alias.name}"
            case _:
                pass
    return names


def _uses(source: Source) -> Iterator[tuple[ast.Name | ast.Attribute, str]]:
    """Yields every use of an imported name with the full dotted name it stands for."""
    names = _names(source)
    for node in source.nodes:
        if isinstance(node, ast.Name | ast.Attribute):
            head, dot, rest = ast.unparse(node).partition(".")
            if head in names:
                yield node, names[head] + dot + rest


def banned_calls(source: Source) -> list[str]:
    """Where a run must be repeatable nobody asks the clock or draws lots: ports do."""
    if not source.path.startswith(DETERMINISTIC):
        return []
    return sorted(
        {
            source.complain(node.lineno, f"{name}: use ports.clock, core.ids, ports.entropy")
            for node, name in _uses(source)
            if BANNED_CALLS.fullmatch(name)
        }
    )


def _is_set(node: ast.expr) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_set(left) or _is_set(right)
        case _:
            return False


def unordered_loops(source: Source) -> list[str]:
    """Where a run must be repeatable no loop takes its order from a set."""
    if not source.path.startswith(DETERMINISTIC):
        return []
    walked: list[ast.expr] = []
    for node in source.nodes:
        match node:
            case ast.For(iter=walk) | ast.AsyncFor(iter=walk):
                walked.append(walk)
            case ast.ListComp(generators=loops) | ast.DictComp(generators=loops):
                walked += [loop.iter for loop in loops]
            case ast.Call(func=ast.Name(id="list" | "tuple"), args=[walk]):
                walked.append(walk)
            case _:
                pass
    return [
        source.complain(walk.lineno, "a set has no order; sort it before walking it")
        for walk in walked
        if _is_set(walk)
    ]


def unordered_waits(source: Source) -> list[str]:
    """`asyncio.wait` returns sets, so whoever calls it says on the line how they are sorted."""
    if not source.path.startswith(ORDERED_WAITS):
        return []
    lines = source.text.splitlines()
    return [
        source.complain(node.lineno, "asyncio.wait without `# sorted:` and how on its line")
        for node, name in _uses(source)
        if name == "asyncio.wait" and "# sorted:" not in lines[node.lineno - 1]
    ]


def error_names(source: Source) -> list[str]:
    """Returns the public classes of core/errors.py."""
    return [
        node.name
        for node in source.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]


def event_names(source: Source) -> list[str]:
    """Returns the event types of core/events.py.

    They are the values of string enumerations and of upper-case constants such as `agent.created`,
    and the names of all other public classes.
    """
    names = []
    for node in source.tree.body:
        match node:
            case ast.ClassDef(name=name, bases=bases, body=body) if not name.startswith("_"):
                if any(ast.unparse(base).endswith("Enum") for base in bases):
                    names += [value for member in body for _, value in _constants(member)]
                else:
                    names.append(name)
            case _:
                names += [
                    value
                    for name, value in _constants(node)
                    if name.isupper() and re.fullmatch(r"\w+(\.\w+)+", value)
                ]
    return names


def _constants(node: ast.stmt) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            pass
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
            pass
        case _:
            return
    match value:
        case ast.Constant(value=str(text)):
            yield name, text
        case ast.Call(func=func) if ast.unparse(func).rpartition(".")[2] == "auto":
            yield name, name.lower()
        case _:
            pass


def missing_from_page(names: Iterable[str], doc_path: str, doc: str) -> list[str]:
    """Every name stands in the page as a word of its own."""
    return [
        f"{doc_path}:1: {name} is not explained here"
        for name in names
        if not re.search(rf"(?<![\w.]){re.escape(name)}(?!\w|\.\w)", doc)
    ]


def machine_traces(path: str, text: str) -> list[str]:
    """No file names a package registry or a place on the machine where it was written."""
    return [
        f"{path}:{number}: {trace} is of one machine or one network only"
        for number, line in enumerate(text.splitlines(), 1)
        for trace in (
            *(host for host in HOST_NAMES if host in line),
            *(found[0] for found in MACHINE_PATHS.finditer(line)),
        )
    ]
