"""The command `tenure`: finds the command that was typed, runs it and returns its exit code.

The module of a command is imported only when that command is typed, so that `--help` and
`--version` start fast.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

from tenure.faces.cli.exits import CommandExit, Exit

COMMANDS: Final = {
    "up": ("tenure.faces.cli.commands.up", "Start a control plane in the foreground."),
    "worker": (
        "tenure.faces.cli.commands.worker",
        "Perform operations, one of several processes of a plane.",
    ),
    "wait": ("tenure.faces.cli.commands.wait", "Wait until the control plane is ready."),
    "doctor": ("tenure.faces.cli.commands.doctor", "Check everything that a control plane needs."),
    "agent": ("tenure.faces.cli.commands.agent", "Create, show, invoke and delete agents."),
    "operation": (
        "tenure.faces.cli.commands.operation",
        "Follow operations, and resolve stuck ones.",
    ),
    "apply": ("tenure.faces.cli.commands.apply", "Create agents from files."),
    "plan": ("tenure.faces.cli.commands.plan", "Show what apply would change."),
    "export": ("tenure.faces.cli.commands.export", "Print agents as files for apply."),
    "token": ("tenure.faces.cli.commands.token", "Create, list and revoke API tokens."),
    "quota": ("tenure.faces.cli.commands.quota", "Show the quota of agents, and set it."),
    "finding": (
        "tenure.faces.cli.commands.finding",
        "Read the findings of reconcilers, and resolve them.",
    ),
    "reconcile": ("tenure.faces.cli.commands.reconcile", "Run reconcilers now."),
    "event": ("tenure.faces.cli.commands.event", "List events, and follow new ones."),
    "subscription": (
        "tenure.faces.cli.commands.subscription",
        "Subscribe to events, and see which were not delivered.",
    ),
    "tenant": (
        "tenure.faces.cli.commands.tenant",
        "Show or set whether missing acknowledgements block creates.",
    ),
    "audit": ("tenure.faces.cli.commands.audit", "Read the audit log and verify its hash chain."),
    "backup": ("tenure.faces.cli.commands.backup", "Copy a plane's files, also while it runs."),
    "restore": (
        "tenure.faces.cli.commands.restore",
        "Restore a backup, and end the pause after it.",
    ),
    "migrate-store": (
        "tenure.faces.cli.commands.migrate_store",
        "Move an embedded store to PostgreSQL.",
    ),
    "upgrade": (
        "tenure.faces.cli.commands.upgrade",
        "Show what this release would change in a home.",
    ),
    "completion": (
        "tenure.faces.cli.commands.completion",
        "Print a script that completes commands.",
    ),
}
"""The module of each command and its help; the module has it under the name `command`."""

EPILOG: Final = """\b
First steps:
  tenure up &                                   start a control plane in ./.tenure
  tenure wait                                   until it is ready
  tenure agent create hello --command 'python3 agent.py'
  tenure agent invoke hello '{"prompt": "hi"}'
  tenure agent delete hello

\b
Exit codes: 0 ok, 1 failed or undone, 2 usage, 3 differs, 4 authentication, 5 timed out,
6 stuck, 130 interrupted."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (as click asks)
        """The names of all commands, in the order of `COMMANDS`."""
        return [*COMMANDS]

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 (as click asks)
        cmd_name: str,
    ) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(COMMANDS[cmd_name][0]).command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command as click does; for an unknown name suggest the nearest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "see tenure --help"
            ctx.fail(f"there is no command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 (as click asks)
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands from `COMMANDS`, without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _version(context: click.Context, _: click.Parameter, requested: bool) -> None:  # noqa: FBT001
    if requested:
        # The package is loaded already: this module is a part of it.
        click.echo(f"tenure {sys.modules['tenure'].__version__}")
        context.exit()


def _command() -> click.Group:
    from tenure.faces.cli.options import server_options

    @click.group(
        cls=LazyGroup,
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    @click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_version,
        help="Print the version.",
    )
    @server_options
    def tenure() -> None:
        """Manage the lifecycle of agents: every operation finishes or is undone, and says which."""

    return tenure


def main(args: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    code = _run(args)
    if args is None and "temporalio" in sys.modules:
        # Its threads would call into an interpreter that shuts down, and abort the process.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _run(args: Sequence[str] | None) -> int:
    try:
        code = _command().main(
            args=None if args is None else [*args], prog_name="tenure", standalone_mode=False
        )
        sys.stdout.flush()
        return int(code) if isinstance(code, int) else Exit.OK
    except CommandExit as error:
        if error.sentence:
            _print_error(error.sentence, error.advice)
        return int(error.code)
    except click.exceptions.Abort:
        _print_error("interrupted")
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.ENOSPC} or error.filename is not None:
            raise
        # Python flushes standard output again at exit, which would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.ENOSPC:
            _print_error("the output cannot be written: there is no space left")
        return Exit.FAILED


def _print_error(sentence: str, advice: str = "") -> None:
    from tenure.faces.cli.output import escape_control, say

    lines = [escape_control(line) for line in sentence.splitlines()]
    say("\n".join([f"{click.style('error', fg='red')}: {lines[0]}", *lines[1:]]))
    if advice:
        say(f"  {escape_control(advice)}")
