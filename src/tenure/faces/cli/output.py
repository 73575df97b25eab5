"""What a command prints: data on standard output in the form asked for, messages on standard error.

Tables are plain aligned text, so that they can be cut and searched; nothing here waits or asks.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import click

FORMS: Final = ("table", "json", "yaml", "name")
Item = Mapping[str, Any]
COLOURS: Final = {
    "READY": "green", "SUCCEEDED": "green", "ok": "green",
    "SUSPENDED": "yellow", "COMPENSATED": "yellow", "WAITING": "yellow", "warn": "yellow",
    "CREATE_FAILED": "red", "DELETE_FAILED": "red", "UPDATE_FAILED": "red", "STUCK": "red",
    "ABANDONED": "red", "fail": "red",
}  # fmt: skip
"""Words that are coloured on a terminal."""


class Column(NamedTuple):
    """One column of a table."""

    title: str
    of: Callable[[Item], str]


class Noun(NamedTuple):
    """How one kind of thing is shown."""

    columns: Sequence[Column]
    name: Callable[[Item], str]


def show_all(items: Sequence[Item], noun: Noun, *, form: str) -> None:
    """Print a list of things."""
    match form:
        case "json":
            _print(json.dumps(list(items), indent=2, ensure_ascii=False))
        case "yaml":
            _print(as_yaml(list(items)).rstrip("\n"))
        case "name":
            for item in items:
                _print(noun.name(item))
        case _:
            _print(table([c.title for c in noun.columns], [
                [column.of(item) for column in noun.columns] for item in items
            ]))  # fmt: skip


def show(item: Item, noun: Noun, *, form: str, text: Callable[[Item], str]) -> None:
    """Print one thing; `text` is how a person sees it."""
    match form:
        case "json":
            _print(json.dumps(item, indent=2, ensure_ascii=False))
        case "yaml":
            _print(as_yaml(item).rstrip("\n"))
        case "name":
            _print(noun.name(item))
        case _:
            _print(text(item))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Aligned columns under their titles; control characters are shown, never sent."""
    lines = [list(titles), *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(titles))]
    return "\n".join(
        "  ".join(
            _coloured(cell) + " " * (width - len(cell))
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, one below the other; what is empty is left out."""
    kept = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "\n".join(
        f"{name + ':':<{width + 2}}{_coloured(plain_lines(value, indent=width + 2))}"
        for name, value in kept
    )


def as_yaml(value: object) -> str:
    """As YAML, keys in the order in which they are."""
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)


def instant(at: float | None) -> str:
    """A moment as a table has it: in UTC, as all of them are."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def counted(number: int, thing: str) -> str:
    """So many of them: `1 agent`, `2 agents`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def plain(text: str) -> str:
    """Text that cannot steer a terminal: what is not printable is written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def plain_lines(text: str, *, indent: int = 0) -> str:
    """The same of a text with several lines, each after the first set in by so much."""
    return f"\n{' ' * indent}".join(map(plain, text.split("\n")))


def pass_on(text: str) -> None:
    """Write what an agent printed: to a program as it is, to a terminal without what steers it."""
    if sys.stdout.isatty():
        text = _LINE.sub(lambda part: plain(part[0]), text)
    sys.stdout.write(_fitting(text, sys.stdout))
    sys.stdout.flush()


_LINE = re.compile(r"[^\n\t]+")


def say(sentence: str) -> None:
    """Tell the person at the terminal; scripts read standard output."""
    click.echo(_fitting(sentence, sys.stderr), err=True)


def _coloured(cell: str) -> str:
    return click.style(cell, fg=COLOURS[cell]) if cell in COLOURS else cell


def _print(text: str) -> None:
    click.echo(_fitting(text, sys.stdout))


def _fitting(text: str, stream: Any) -> str:  # noqa: ANN401 (whatever standard output is now)
    """The text as the stream can take it: a terminal without UTF-8 gets it written out."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
