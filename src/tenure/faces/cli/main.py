"""The command `tenure`: finds the command that was typed, and makes an exit code of how it ended.

A command's module is imported when it is typed and not before: `--help`, `--version` and a typing
error cost next to nothing.
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
    "up": ("tenure.faces.cli.up", "Start a control plane here, in the foreground."),
    "worker": ("tenure.faces.cli.worker", "Move operations beside other processes of a plane."),
    "wait": ("tenure.faces.cli.wait", "Wait until the control plane is ready."),
    "doctor": ("tenure.faces.cli.doctor", "Look whether everything is in order."),
    "agent": ("tenure.faces.cli.agent", "Create, look at, use and delete agents."),
    "operation": ("tenure.faces.cli.operation", "Follow what is under way; help what is stuck."),
    "apply": ("tenure.faces.cli.apply", "Make agents as files say."),
    "plan": ("tenure.faces.cli.plan", "Show what apply would do."),
    "export": ("tenure.faces.cli.export", "Print agents as files that apply takes."),
    "token": ("tenure.faces.cli.token", "Hand out and revoke tokens."),
    "quota": ("tenure.faces.cli.quota", "Look at the quota of agents, and set it."),
    "finding": ("tenure.faces.cli.finding", "Read what reconcilers have seen; settle it."),
    "reconcile": ("tenure.faces.cli.reconcile", "Let reconcilers look now."),
    "event": ("tenure.faces.cli.event", "Look at events, and follow them as they are committed."),
    "subscription": (
        "tenure.faces.cli.subscription",
        "Have events sent, and see what was not taken.",
    ),
    "tenant": ("tenure.faces.cli.tenant", "Look whether the tenant is strict, and set it."),
    "audit": ("tenure.faces.cli.audit", "Read the audit log, and verify its chain."),
    "backup": ("tenure.faces.cli.backup", "Copy a plane's files, also while it runs."),
    "restore": ("tenure.faces.cli.restore", "Put a backup back, and let the plane go."),
    "migrate-store": ("tenure.faces.cli.migrate_store", "Move an embedded store to PostgreSQL."),
    "upgrade": ("tenure.faces.cli.upgrade", "Look what this release would do to a home."),
    "completion": ("tenure.faces.cli.completion", "Print a script that completes commands."),
}
"""Each command's module, and what it does; the module holds it under the name `command`."""

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


class Late(click.Group):
    """A group whose commands are imported when they are typed."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (as click asks)
        """All of them, in the order of the table."""
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
        """As click does it; an unknown name is answered with the nearest one."""
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
        """From the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


def _version(context: click.Context, _: click.Parameter, asked: bool) -> None:  # noqa: FBT001
    if asked:
        # The package is loaded already: this module is a part of it.
        click.echo(f"tenure {sys.modules['tenure'].__version__}")
        context.exit()


def _command() -> click.Group:
    from tenure.faces.cli.options import server_options

    @click.group(
        cls=Late,
        epilog=EPILOG,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    @click.option(
        "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version,
        help="Say which version this is.",
    )  # fmt: skip
    @server_options
    def tenure() -> None:
        """Tenure: every operation on an agent finishes or is undone, and says which."""

    return tenure


def main(args: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    code = _run(args)
    if args is None and "temporalio" in sys.modules:
        # Its threads call into an interpreter that is being taken down, and abort the process.
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
            _complain(error.sentence, error.advice)
        return int(error.code)
    except click.exceptions.Abort:
        _complain("interrupted")
        return Exit.INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except OSError as error:
        if error.errno not in {errno.EPIPE, errno.ENOSPC} or error.filename is not None:
            raise
        # Python flushes standard output once more on its way out; there is nobody to read it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.ENOSPC:
            _complain("what is to be printed cannot be written: there is no space left")
        return Exit.FAILED


def _complain(sentence: str, advice: str = "") -> None:
    from tenure.faces.cli.output import plain, say

    lines = [plain(line) for line in sentence.splitlines()]
    say("\n".join([f"{click.style('error', fg='red')}: {lines[0]}", *lines[1:]]))
    if advice:
        say(f"  {plain(advice)}")
