"""A Python file of the project as the house rules see it: its path, its text, what it imports."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Source:
    """One Python file: where it stands, counted from the root of the project, and what it says."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def module(self) -> str:
        """The dotted name it is imported by, such as `tenure.core.saga`."""
        parts = PurePosixPath(self.path).with_suffix("").parts
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)

    @property
    def package(self) -> str:
        """The dotted name that one dot in an import stands for."""
        is_package = self.path.endswith("__init__.py")
        return self.module if is_package else self.module.rpartition(".")[0]

    @property
    def room(self) -> str:
        """The folder, or the lone file, directly under src/tenure."""
        return PurePosixPath(PurePosixPath(self.path).parts[2]).stem

    def complain(self, line: int, sentence: str) -> str:
        return f"{self.path}:{line}: {sentence}"


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Yields the line and the full dotted name of everything imported, at whatever depth."""
    for node in source.nodes:
        match node:
            case ast.Import(names=names, lineno=line):
                yield from ((line, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level, lineno=line):
                above = source.package.split(".")
                above = above[: len(above) - level + 1] if level else []
                start = ".".join([*above, *([module] if module else [])])
                for alias in names:
                    yield line, start if alias.name == "*" else f"{start}.{alias.name}"
            case ast.Call(func=func, args=[ast.Constant(value=str(name)), *_], lineno=line):
                called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
                if called in {"import_module", "__import__"}:
                    yield line, name
            case _:
                pass


def is_within(name: str, prefix: str) -> bool:
    """Says whether a dotted name is the prefix itself or lies below it."""
    return name == prefix or name.startswith(prefix + ".")
