"""The house rule about patches: what a test or a proof replaces must exist.

An ablation replaces an attribute of src by its name, so a rename in src can leave it behind, and
only a run of that ablation would tell.  This check reads every `patched(Owner, name=…)`,
`monkeypatch.setattr(Owner, "name", …)` and `monkeypatch.setattr("tenure.module.name", …)`.  It
finds the owner through the imports of the file, imports the owner's module and looks the name up.

It does not see an owner that only a run knows: a local variable, an instance, `type(engine)`; nor
names in `**values`; nor an owner outside `tenure` and `proofs`.
"""

import ast
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from tests.tidy.sources import Source

TOPS = ("tenure", "proofs")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

Scope = dict[str, str | None]
"""Local names and the dotted names that they stand for; None: only a run knows."""


class PatchTarget(NamedTuple):
    """An attribute that a file replaces."""

    line: int
    owner: str
    """The full dotted name of a module or class."""
    name: str
    inherited: bool
    """Whether a base class of the owner may have it."""


def patch_targets(source: Source) -> list[PatchTarget]:
    """The attributes of `tenure` and `proofs` that this file replaces, as far as it names them."""
    if "patched(" not in source.text and "setattr(" not in source.text:
        return []
    return [
        target
        for call, scope in _calls(source.tree, _module_scope(source))
        for target in _targets_of(call, scope)
        if target.owner.partition(".")[0] in TOPS
    ]


def stale_patches(source: Source) -> list[str]:
    """Every attribute that a file replaces exists."""
    return [
        source.complain(target.line, f"{target.owner} has no {target.name} to replace")
        for target in patch_targets(source)
        if not _exists(target)
    ]


def _targets_of(call: ast.Call, scope: Scope) -> Iterator[PatchTarget]:
    match call:
        case ast.Call(func=ast.Name(id="patched"), args=[owner], keywords=values):
            if dotted := _dotted(owner, scope):
                for value in values:
                    if value.arg is not None:
                        yield PatchTarget(call.lineno, dotted, value.arg, inherited=False)
        case ast.Call(
            func=ast.Attribute(attr="setattr"),
            args=[owner, ast.Constant(value=str(name)), _],
            keywords=[],
        ):
            if dotted := _dotted(owner, scope):
                yield PatchTarget(call.lineno, dotted, name, inherited=True)
        case ast.Call(
            func=ast.Attribute(attr="setattr"),
            args=[ast.Constant(value=str(path)), _],
            keywords=[],
        ):
            dotted, _, name = path.rpartition(".")
            yield PatchTarget(call.lineno, dotted, name, inherited=True)
        case _:
            pass


def _calls(node: ast.AST, scope: Scope) -> Iterator[tuple[ast.Call, Scope]]:
    """Yields every call with what the names mean there."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield child, scope
        is_function = isinstance(child, FUNCTIONS)
        yield from _calls(child, {**scope, **_function_scope(child)} if is_function else scope)


def _module_scope(source: Source) -> Scope:
    scope: Scope = {}
    for defined in source.tree.body:
        if isinstance(defined, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            scope[defined.name] = f"{source.module}.{defined.name}"
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            scope |= _names_of(node)
    return scope


def _function_scope(function: ast.AST) -> Scope:
    """What a function binds itself: parameters and variables hide the names of the module."""
    scope: Scope = {}
    imported: Scope = {}
    for node in ast.walk(function):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                scope[name] = None
            case ast.ClassDef(name=name):
                scope[name] = None
            case ast.Import() | ast.ImportFrom():
                imported |= _names_of(node)
            case _:
                pass
    return scope | imported


def _names_of(node: ast.Import | ast.ImportFrom) -> Scope:
    if isinstance(node, ast.ImportFrom):
        start = f"{node.module}." if not node.level else "."
        return {alias.asname or alias.name: start + alias.name for alias in node.names}
    return {
        alias.asname or alias.name.partition(".")[0]: (
            alias.name if alias.asname else alias.name.partition(".")[0]
        )
        for alias in node.names
    }


def _dotted(owner: ast.expr, scope: Scope) -> str | None:
    """The full name of an owner that is written as names with dots between them."""
    match owner:
        case ast.Name(id=name):
            return scope.get(name)
        case ast.Attribute(value=value, attr=attr):
            start = _dotted(value, scope)
            return start and f"{start}.{attr}"
        case _:
            return None


def _exists(target: PatchTarget) -> bool:
    try:
        owner = _find(target.owner)
    except (ImportError, AttributeError):
        return False
    return hasattr(owner, target.name) if target.inherited else target.name in owner.__dict__


def _find(dotted: str) -> Any:
    """The module or class of this name: modules as far as there are any, then their attributes."""
    first, *rest = dotted.split(".")
    found: Any = import_module(first)
    for part in rest:
        if isinstance(found, ModuleType) and not hasattr(found, part):
            found = import_module(f"{found.__name__}.{part}")
        else:
            found = getattr(found, part)
    return found
