"""The output of commands: data on standard output, messages on standard error.

Tables are plain aligned text, so that other programs can cut and search them.  They are fitted to
the width of a terminal only if there is one.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TextIO

import click

TABLES: Final = ("table", "wide")
"""Formats for people; `wide` shows all columns, however narrow the terminal is."""
FORMS: Final = (*TABLES, "json", "yaml", "name")
GAP: Final = "  "
SHRUNK_CHARACTERS_MIN = 12
WRAPPED_CHARACTERS_MIN = 20
Item = Mapping[str, Any]
COLOURS: Final = {
    "READY": "green", "SUCCEEDED": "green", "ok": "green",
    "SUSPENDED": "yellow", "COMPENSATED": "yellow", "WAITING": "yellow", "warn": "yellow",
    "CREATE_FAILED": "red", "DELETE_FAILED": "red", "UPDATE_FAILED": "red", "STUCK": "red",
    "ABANDONED": "red", "fail": "red",
}  # fmt: skip
"""The colours of words on a terminal."""


class Column(NamedTuple):
    """One column of a table."""

    title: str
    of: Callable[[Item], str]
    can_shrink: bool = False
    """Whether its cells may be shortened on a narrow terminal."""
    drop_rank: int = 0
    """On a narrow terminal the columns with the highest rank are left out first; 0: never."""


class Noun(NamedTuple):
    """How one kind of object is shown."""

    columns: Sequence[Column]
    name: Callable[[Item], str]


def show_all(
    items: Sequence[Item],
    noun: Noun,
    *,
    form: str,
    text: Callable[[Sequence[Item]], str] | None = None,
) -> None:
    """Print a list of objects; `text` replaces the table on a terminal."""
    match form:
        case "json":
            _print(json.dumps(list(items), indent=2, ensure_ascii=False))
        case "yaml":
            _print(as_yaml(list(items)).rstrip("\n"))
        case "name":
            for item in items:
                _print(noun.name(item))
        case _:
            room = terminal_width() if form != "wide" else None
            if room and text is not None:
                _print(text(items))
                return
            columns = noun.columns
            rows = [[_one_line(column.of(item)) for column in columns] for item in items]
            if room:
                columns, rows = _narrow(columns, rows, room)
                rows = _shorten(columns, rows, room)
            _print(table([column.title for column in columns], rows))


def show(item: Item, noun: Noun, *, form: str, text: Callable[[Item], str]) -> None:
    """Print one object; `text` formats it for people."""
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
    """Aligned columns under their titles; control characters are escaped."""
    lines = [list(titles), *([escape_control(cell) for cell in row] for row in rows)]
    widths = _widths(lines)
    return "\n".join(
        GAP.join(
            _colour(cell) + " " * (width - len(cell))
            for cell, width in zip(line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def table_with_text(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same with a text of several lines as its last column, wrapped to the terminal."""
    before = [list(titles[:-1]), *([escape_control(cell) for cell in row[:-1]] for row in rows)]
    indent = sum(width + len(GAP) for width in _widths(before))
    room = (terminal_width() or 0) - indent
    texts = [list(_wrap_lines(row[-1], room)) for row in rows]
    tops = table(titles, [[*row[:-1], text[0]] for row, text in zip(rows, texts, strict=True)])
    below = [[], *(text[1:] for text in texts)]
    return "\n".join(
        line
        for top, more in zip(tops.split("\n"), below, strict=True)
        for line in (top, *(" " * indent + one for one in more))
    )


def terminal_width() -> int | None:
    """The width of the terminal in characters; None: standard output is no terminal."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*lines, strict=True)]


def _one_line(text: str) -> str:
    """A text joined into one line, for a table."""
    return " ".join(part.strip() for part in _lines(text)).strip()


def _lines(text: str) -> list[str]:
    """The lines of a text; tabs become spaces and other control characters are escaped."""
    return [escape_control(line.removesuffix("\r").expandtabs()) for line in text.split("\n")]


def _narrow(
    columns: Sequence[Column], rows: list[list[str]], room: int
) -> tuple[Sequence[Column], list[list[str]]]:
    """The columns that fit; columns with the highest `drop_rank` are left out first."""
    widths = _widths([[column.title for column in columns], *rows])
    least = [
        min(width, SHRUNK_CHARACTERS_MIN) if column.can_shrink else width
        for column, width in zip(columns, widths, strict=True)
    ]
    left = list(range(len(columns)))
    for index in sorted(left, key=lambda n: columns[n].drop_rank, reverse=True):
        if _table_width([least[n] for n in left]) <= room or not columns[index].drop_rank:
            break
        left.remove(index)
    return [columns[n] for n in left], [[row[n] for n in left] for row in rows]


def _table_width(widths: Sequence[int]) -> int:
    """The width of a table with columns of these widths."""
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _shorten(columns: Sequence[Column], rows: list[list[str]], room: int) -> list[list[str]]:
    """The rows with cells shortened until the table fits, in the widest column first."""
    widths = _widths([[column.title for column in columns], *rows])
    excess = _table_width(widths) - room
    shrinkable = [n for n, column in enumerate(columns) if column.can_shrink]
    for _ in range(excess):
        longest = max(shrinkable, key=widths.__getitem__, default=0)
        if not shrinkable or widths[longest] <= SHRUNK_CHARACTERS_MIN:
            break
        widths[longest] -= 1
    dots = "…" if is_utf8(sys.stdout) else "..."
    return [
        [
            cell if len(cell) <= width else cell[: width - len(dots)].rstrip() + dots
            for cell, width in zip(row, widths, strict=True)
        ]
        for row in rows
    ]


def _wrap(line: str, room: int) -> list[str]:
    """The line wrapped to this width; its indentation stays."""
    if len(line) <= room or room < WRAPPED_CHARACTERS_MIN:
        return [line]
    import textwrap

    before = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(
        line, room, subsequent_indent=before, break_on_hyphens=False, break_long_words=False
    )


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and values, one pair in each line, wrapped; empty values are left out."""
    filled = [(name, value) for name, value in pairs if value]
    indent = max((len(name) for name, _ in filled), default=0) + 2
    room = (terminal_width() or 0) - indent
    return "\n".join(
        f"{name + ':':<{indent}}{_colour(_join_indented(_wrap_lines(value, room), indent))}"
        for name, value in filled
    )


def _wrap_lines(text: str, room: int) -> Iterator[str]:
    for line in _lines(text):
        yield from _wrap(line, room)


def _join_indented(lines: Iterable[str], indent: int) -> str:
    return f"\n{' ' * indent}".join(lines)


def as_yaml(value: object) -> str:
    """The value as YAML, with keys in their order."""
    import yaml

    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)


def instant(at: float | None) -> str:
    """A time in UTC, as tables show it."""
    if at is None:
        return ""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def count_of(number: int, thing: str) -> str:
    """A number with its noun: `1 agent`, `2 agents`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def escape_control(text: str) -> str:
    """The text with unprintable characters escaped, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def escape_lines(text: str, *, indent: int = 0) -> str:
    """The same for a text of several lines; each line after the first is indented."""
    return _join_indented(_lines(text), indent)


def print_agent_output(text: str) -> None:
    """Print an agent's output: unchanged to a program, without control characters to a terminal."""
    if sys.stdout.isatty():
        text = _LINE.sub(lambda part: escape_control(part[0]), text)
    sys.stdout.write(_encodable(text, sys.stdout))
    sys.stdout.flush()


_LINE = re.compile(r"[^\n\t]+")


def is_utf8(stream: TextIO) -> bool:
    """Whether the stream can show characters beyond ASCII."""
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def say(sentence: str) -> None:
    """Print a message for people on standard error; scripts read standard output."""
    click.echo(_encodable(sentence, sys.stderr), err=True)


def _colour(cell: str) -> str:
    return click.style(cell, fg=COLOURS[cell]) if cell in COLOURS else cell


def _print(text: str) -> None:
    click.echo(_encodable(text, sys.stdout))


def _encodable(text: str, stream: Any) -> str:  # noqa: ANN401 (standard output may be replaced)
    """The text in the encoding of the stream; characters that it lacks are escaped."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
