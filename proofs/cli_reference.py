"""docs/reference/cli.md: the part about commands, made from the commands themselves.

The page's first part is written by hand and ends at `MARKER`.  Below it every command has a
section: its usage, its help, its options and its examples.
"""

import re
from collections.abc import Iterator

import click

from tenure.faces.cli.main import COMMANDS, _command

MARKER = "<!-- The rest of this page is made from the commands by `make docs`. -->\n"
SHARED = ("home", "address", "token_file", "form", "help")
"""Options that many commands have; the first part of the page explains them."""


def page(text: str) -> str:
    """The page with its second part made anew."""
    head, _, _ = text.partition(MARKER)
    return head + MARKER + "".join(_sections())


def _sections() -> Iterator[str]:
    root = _command()
    context = click.Context(root, info_name="tenure")
    for name in COMMANDS:
        command = root.get_command(context, name)
        assert command is not None
        yield from _section(command, click.Context(command, context, name), f"tenure {name}")


def _section(command: click.Command, context: click.Context, path: str) -> Iterator[str]:
    is_group = isinstance(command, click.Group)
    level = "##" if context.parent is not None and context.parent.parent is None else "###"
    yield f"\n{level} {path}\n\n{_prose(command.help or '')}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            verb = command.get_command(context, name)
            assert verb is not None
            yield from _section(verb, click.Context(verb, context, name), f"{path} {name}")
    if not is_group:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f"\n`{path} {usage}`\n"
        yield from _options(command)
        yield from _examples(command.epilog or "")


def _options(command: click.Command) -> Iterator[str]:
    options = [one for one in command.params if isinstance(one, click.Option)]
    options = [one for one in options if one.name not in SHARED and not one.hidden]
    if not options:
        return
    yield "\n| option | |\n| ------ | - |\n"
    for option in options:
        names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
        value = "" if option.is_flag else f" `{option.make_metavar(click.Context(command))}`"
        value = value.replace("|", "\\|")
        yield f"| {names}{value} | {_cell(option)} |\n"


def _cell(option: click.Option) -> str:
    words = re.sub(r"\s+", " ", option.help or "").replace("|", "\\|")
    words = re.sub(r"\[(TENURE_\w+)\]", r"(`\1`)", words)
    if option.show_default and option.default is not None:
        words = f"{words} Default: {option.default}."
    return words


def _examples(epilog: str) -> Iterator[str]:
    lines = [line.strip() for line in epilog.splitlines()]
    typed = [line for line in lines if line.startswith(("tenure ", "echo ", "eval "))]
    if typed:
        yield "\n```sh\n" + "\n".join(typed) + "\n```\n"


def _prose(text: str) -> str:
    paragraphs = re.split(r"\n\s*\n", text.replace("\b", "").strip())
    return "\n\n".join(re.sub(r"\s+", " ", one).strip() for one in paragraphs)
