"""Writes docs/reference/python.md: the public names of `tenure`, from their docstrings.

`make docs` runs it (`proofs.pages`); a test fails when the page is another.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from enum import Enum
from types import FunctionType
from typing import Any, Final

import tenure
from tenure.core import plan

INTRODUCTION: Final = """\
# Python

`import tenure` is the whole public surface: this page has every name of it. Everything deeper in
the package may move in any release, except `tenure.testing` for authors of providers
([write a plan](../howto/write-a-plan.md) shows both). `make docs` makes this page from the
docstrings.

```python
import tenure

async with tenure.open_plane("tenure.db", plans=[PLAN]) as plane:
    operation = await plane.start("onboard", input={"name": "ada"})
    operation = await plane.wait(operation.id)
```
"""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "A plane": ("open_plane", "OpenPlane", "Temporal"),
    "An operation": ("OperationView", "OperationState", "StepView", "IntentState"),
    "A plan": (
        "Plan",
        "Step",
        "StepKind",
        "StepLimits",
        "provided",
        "nothing",
        "repeat",
        "nobody_knows",
        "Call",
    ),
    "How a call ends": ("Done", "NotYet", "Waiting", "Absent"),
    "A conflict": ("ConflictCode",),
    "A provider": ("Provider", "ResourceKey", "Presence", "Observation", "OwnedResource"),
}
"""Which names stand under which heading; all others but the version are errors."""
WITH_METHODS: Final = ("OpenPlane", "OperationView", "Provider")
"""Classes whose methods are public too; of the others the fields are."""
CALLED: Final = ("Plan",)
"""Classes that are made with other arguments than their fields."""
LINE_MAX: Final = 90
ERRORS: Final = """\
## Errors

Each is a `TenureError` with a stable `code`, except `CommitUnknown` and `StoreRewound`.
[Errors](errors.md) says what to do about each of them.

| error | is a | when |
| ----- | ---- | ---- |
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for heading, names in GROUPS.items():
        parts.append(f"\n## {heading}\n")
        parts += [f"\n{_entry(name, getattr(tenure, name))}" for name in names]
    parts.append(f"\n{ERRORS}")
    parts += [_error(getattr(tenure, name)) for name in error_names()]
    return "".join(parts)


def error_names() -> list[str]:
    """The public names that no group has."""
    grouped = {"__version__", *(name for names in GROUPS.values() for name in names)}
    return [name for name in tenure.__all__ if name not in grouped]


def _error(error: type[BaseException]) -> str:
    when = " ".join(inspect.cleandoc(error.__doc__ or "").split())
    return f"| `{error.__name__}` | `{error.__mro__[1].__name__}` | {when} |\n"


def _entry(name: str, value: Any) -> str:
    heading = f"### `{name}`\n\n"
    if isinstance(value, FunctionType):
        return heading + _function(name, value)
    if isinstance(value, Enum):
        return f"{heading}{_constant(name, value)}\n"
    if issubclass(value, Enum):
        return f"{heading}{_prose(value)}\n{_members(value)}"
    methods = _methods(value) if name in WITH_METHODS else ""
    made = f"```py\n{signature_of(name, value.__init__)}\n```\n\n" if name in CALLED else ""
    return f"{heading}{made}{_prose(value)}\n{_fields(value)}{methods}"


def _constant(name: str, value: Enum) -> str:
    """What is written below a constant, or below the member that it names."""
    text = _notes(ast.parse(inspect.getsource(plan))).get(name)
    return text or _notes(_body(type(value)))[value.name]


def _function(name: str, function: FunctionType) -> str:
    return f"```py\n{signature_of(name, function)}\n```\n\n{_prose(function)}\n"


def signature_of(name: str, function: Any) -> str:
    """The call as its source declares it, without `self`; a long one has a line a parameter."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    parsed = ast.parse(source).body[0]
    assert isinstance(parsed, ast.FunctionDef | ast.AsyncFunctionDef)
    taken = parsed.args
    taken.args = [each for each in taken.args if each.arg != "self"]
    parameters = re.sub(r"(?<=[\w\]])=", " = ", _code(ast.unparse(taken)))
    returned = _code(ast.unparse(parsed.returns or ast.Constant(None))).strip('"')
    if name == "open_plane":
        called, end = "async with tenure.", " as plane:"
    else:
        called = "await " if isinstance(parsed, ast.AsyncFunctionDef) else ""
        end = "" if parsed.name == "__init__" else f" -> {returned}"
    line = f"{called}{name}({parameters}){end}"
    if len(line) <= LINE_MAX:
        return line
    names = "|".join(each.arg for each in (*taken.args, *taken.kwonlyargs))
    apart = re.sub(rf", (?=\*,|(?:{names}): )", ",\n    ", parameters)
    return f"{called}{name}(\n    {apart},\n){end}"


def _code(text: str) -> str:
    """Text in double quotes, as the sources have it."""
    return text.replace("'", '"')


def _methods(value: type) -> str:
    """The properties as a list, then each method with its signature."""
    public = {name: each for name, each in vars(value).items() if not name.startswith("_")}
    properties = [
        f"- `{name}: {signature_of(name, each.fget).partition(' -> ')[2]}`: {_prose(each)}\n"
        for name, each in public.items()
        if isinstance(each, property)
    ]
    methods = [
        f"\n#### `{value.__name__}.{name}`\n\n{_function(name, each)}"
        for name, each in public.items()
        if isinstance(each, FunctionType)
    ]
    listed = "\nProperties:\n\n" + "".join(properties) if properties else ""
    return listed + "".join(methods)


def _members(value: type[Enum]) -> str:
    notes = _notes(_body(value))
    lines = (f"- `{one.name}`{_after(notes.get(one.name))}\n" for one in value)
    return "\n" + "".join(lines)


def _fields(value: type) -> str:
    """The annotated fields in order, each with its default and the text below it."""
    body = _body(value)
    notes = _notes(body)
    lines = [
        f"- `{_code(ast.unparse(one))}`{_after(notes.get(name))}\n"
        for one in body.body
        if isinstance(one, ast.AnnAssign)
        and isinstance(one.target, ast.Name)
        and not (name := one.target.id).startswith("_")
        and f"\n- `{name}`: " not in _prose(value)
        and "init=False" not in ast.unparse(one)
    ]
    return "\n" + "".join(lines) if lines else ""


def _after(note: str | None) -> str:
    return f": {note}" if note else ""


def _body(value: type) -> ast.ClassDef:
    parsed = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(parsed, ast.ClassDef)
    return parsed


def _notes(body: ast.ClassDef | ast.Module) -> dict[str, str]:
    """The string that stands right below an assignment, by the name that is assigned."""
    found = {}
    for one, below in zip(body.body, body.body[1:], strict=False):
        target = one.targets[0] if isinstance(one, ast.Assign) else getattr(one, "target", None)
        if isinstance(target, ast.Name) and isinstance(below, ast.Expr):
            value = below.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found[target.id] = " ".join(value.value.split())
    return found


def _prose(value: Any) -> str:
    """A docstring as Markdown: its sections become bold words, what they list becomes lists."""
    text = inspect.cleandoc(value.__doc__ or "").replace(".  ", ". ")
    return re.sub(r"\n +", " ", _sections(text))


def _sections(text: str) -> str:
    """`Args:` and `Raises:` as bold words, and each name below them as code."""
    lines = []
    for line in text.split("\n"):
        if line in ("Args:", "Raises:"):
            lines += [f"**{line[:-1]}**", ""]
        elif item := re.match(r"    (\w+): (.*)", line):
            lines.append(f"- `{item[1]}`: {item[2]}")
        else:
            lines.append(line)
    return "\n".join(lines)
