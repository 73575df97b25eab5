"""Options that many commands share: where the server is, the form of the output, how to wait."""

import os
import re
import sys
from collections.abc import Callable
from functools import wraps
from inspect import cleandoc
from typing import Any, NamedTuple

import click

from tenure.faces.cli import where
from tenure.faces.cli.client import Client
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.output import FORMS

Command = Callable[..., Any]
LEVELS = ("debug", "info", "warning", "error")


class NounGroup(click.Group):
    """The commands of one noun, each listed with the first clause of its help."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands; unlike in click's own list, no line is cut off."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, _CLAUSE_END.split(cleandoc(self.commands[name].help or ""))[0] + ".")
                    for name in self.list_commands(ctx)
                ]
            )


_CLAUSE_END = re.compile(r";\s|\.\s|\.$")


class WaitOptions(NamedTuple):
    """Whether a command waits for its operation, and for how long."""

    wait: bool = True
    timeout: float | None = None


def _store_option(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Store the value for `server_location`; it may come before or after the command's name."""
    values: dict[str, str | None] = context.find_root().ensure_object(dict)
    if value is not None and option.name is not None:
        values[option.name] = value
    return value


def server_options(command: Command) -> Command:
    """Add --home, --address and --token-file."""
    for option, hint, help_text in (
        ("--token-file", "FILE", "The file with the token.  [TENURE_TOKEN: the token itself]"),
        ("--address", "URL", "The server, such as http://127.0.0.1:7450.  [TENURE_ADDRESS]"),
        ("--home", "DIR", "The plane's directory; .tenure here or in ~.  [TENURE_HOME]"),
    ):
        command = click.option(
            option, metavar=hint, expose_value=False, callback=_store_option, help=help_text
        )(command)
    return command


def server_location(context: click.Context) -> where.ServerLocation:
    """The location of the server, from the command line and the environment."""
    return where.location_of(context.find_root().ensure_object(dict), os.environ)


def with_client(command: Command) -> Command:
    """Pass a client to the command as its first argument."""

    @server_options
    @click.pass_context
    @wraps(command)
    def run(context: click.Context, /, **kwargs: object) -> object:
        client = Client(server_location(context))
        try:
            return command(client, **kwargs)
        finally:
            client.close()

    return run


def log_options(command: Command) -> Command:
    """Add --log-level and --log-format."""
    for option, choices, default, help_text in (
        ("--log-format", ("plain", "json"), "plain", "The format of log lines."),
        ("--log-level", LEVELS, "warning", "The lowest level that is logged to standard error."),
    ):
        command = click.option(
            option, type=click.Choice(choices), default=default, show_default=True, help=help_text
        )(command)
    return command


def output_option(command: Command) -> Command:
    """Add -o; the command gets it as `form`."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMS),
        default="table",
        show_default=True,
        help="The output format; wide: a table that is not cut to the terminal.",
    )(command)


def wait_options(command: Command) -> Command:
    """Add --no-wait and --timeout; the command gets them as `waits`."""

    @click.option("--no-wait", is_flag=True, help="Return when the operation is accepted.")
    @click.option(
        "--timeout",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="The longest time to wait; then the exit code is 5, and the operation goes on.",
    )
    @wraps(command)
    def run(*args: object, no_wait: bool, timeout: float | None, **kwargs: object) -> object:
        return command(*args, waits=WaitOptions(not no_wait, timeout), **kwargs)

    return run


def confirm(consequence: str, *, yes: bool) -> None:
    """Ask for confirmation; without a terminal --yes must be given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandExit(Exit.USAGE, consequence, advice="add --yes to do it")
    if not click.confirm(f"{consequence}. Go on?", err=True):
        raise CommandExit(Exit.FAILED, "nothing was done")


def examples(*lines: str) -> str:
    """The examples at the end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def pairs(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The values of an option that takes `KEY=VALUE` several times."""
    found: dict[str, str] = {}
    for value in values:
        key, equals, text = value.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", param=option)
        if found.setdefault(key, text) != text:
            raise click.BadParameter(f"{key!r} is given twice", param=option)
    return found
