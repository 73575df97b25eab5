"""`tenure operation`: lists and follows operations, cancels them and resolves stuck ones."""

import json
import time
from collections import deque
from typing import Any

import click

from tenure.core.operation import OPERATION, OperationState
from tenure.faces.cli import nouns, progress
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.follow_operation import print_operation, wait_and_report
from tenure.faces.cli.options import (
    NounGroup,
    WaitOptions,
    confirm,
    examples,
    output_option,
    wait_options,
    with_client,
)
from tenure.faces.cli.output import say, show, show_all

STATES = tuple(str(state) for state in OperationState)
OPEN = tuple(str(state) for state in OperationState if state not in OPERATION.final)


@click.group(
    "operation",
    cls=NounGroup,
    epilog=examples(
        "tenure operation list --open",
        "tenure operation show ID",
        "tenure operation cancel ID",
    ),
)
def command() -> None:
    """Follow operations, and resolve stuck ones."""


@command.command(
    "list",
    epilog=examples(
        "tenure operation list --open",
        "tenure operation list --state STUCK -o name",
    ),
)
@click.option(
    "--state",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    metavar="STATE",
    help="List only operations in this state.",
)
@click.option("--open", "only_open", is_flag=True, help="List only open operations.")
@click.option("--agent", metavar="NAME", help="List only operations of this agent.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    metavar="N",
    help="How many operations to list.",
)
@output_option
@with_client
def list_operations(
    client: Client,
    *,
    state: tuple[str, ...],
    only_open: bool,
    agent: str | None,
    last: int,
    form: str,
) -> None:
    """List the newest operations, oldest first."""
    states = [one.upper() for one in state] or (list(OPEN) if only_open else [])
    found = client.pages(path("operations"), {"state": states, "agent": agent})
    show_all(deque(found, maxlen=last), nouns.OPERATION, form=form)


@command.command(
    "show",
    epilog=examples(
        "tenure operation show ID",
        "tenure operation show $(tenure operation list --state STUCK --last 1 -o name)",
    ),
)
@click.argument("operation")
@output_option
@with_client
def show_operation(client: Client, *, operation: str, form: str) -> None:
    """Show an operation with its steps; for a stuck one also the commands that resolve it."""
    found = client.get(path("operations", operation))
    show(found, nouns.OPERATION, form=form, text=nouns.operation_text)
    for line in nouns.advice_on(found):
        say(f"  {line}")


@command.command(
    "watch",
    epilog=examples(
        "tenure operation watch $(tenure agent resume hello --no-wait)",
        "tenure operation watch ID --timeout 60",
    ),
)
@click.argument("operation")
@click.option(
    "--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="The longest time to wait."
)
@output_option
@with_client
def watch(client: Client, *, operation: str, timeout: float | None, form: str) -> None:
    """Follow an operation until it ends or is stuck; the exit code shows which."""
    started = time.monotonic()
    found = client.get(path("operations", operation))
    seen = progress.watch(client, found, waits=WaitOptions(timeout=timeout))
    print_operation(seen, form=form, name=operation)
    progress.report_end(
        seen, success=f"{seen['kind']} has succeeded", seconds=time.monotonic() - started
    )


def _send_command(
    client: Client, operation: str, verb: str, *, step: str = "", body: object = None
) -> dict[str, Any]:
    """Send an operator's command; returns the operation."""
    parts = ("operations", operation, *(("steps", step) if step else ()))
    answer: dict[str, Any] = client.send("POST", path(*parts, verb=verb), body=body)
    return answer


@command.command(
    "cancel",
    epilog=examples(
        "tenure operation cancel $(tenure operation list --open --agent hello -o name)",
    ),
)
@click.argument("operation")
@wait_options
@output_option
@with_client
def cancel(client: Client, *, operation: str, waits: WaitOptions, form: str) -> None:
    """Cancel an operation and wait until it is undone; the exit code is then 0."""
    answer = _send_command(client, operation, "cancel")
    if not waits.wait:
        wait_and_report(client, answer, waits=waits, form=form, name=operation, success="")
        return
    started = time.monotonic()
    seen = progress.watch(client, answer, waits=waits)
    print_operation(seen, form=form, name=operation)
    if seen["state"] == "COMPENSATED":
        say(f"{seen['kind']} was undone ({time.monotonic() - started:.1f} s)")
        return
    progress.report_end(
        seen, success=f"{seen['kind']} had succeeded already", seconds=time.monotonic() - started
    )


@command.command(
    "retry", epilog=examples("tenure operation retry ID", "tenure operation retry ID --timeout 60")
)
@click.argument("operation")
@wait_options
@output_option
@with_client
def retry(client: Client, *, operation: str, waits: WaitOptions, form: str) -> None:
    """Retry stuck steps now."""
    answer = _send_command(client, operation, "retry")
    success = f"{answer['kind']} has succeeded"
    wait_and_report(client, answer, waits=waits, form=form, name=operation, success=success)


@command.command("abandon", epilog=examples("tenure operation abandon ID"))
@click.argument("operation")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option
@with_client
def abandon(client: Client, *, operation: str, yes: bool, form: str) -> None:
    """End a stuck operation without undoing it; its resources stay at their providers."""
    confirm("its resources stay at their providers until the agent is deleted", yes=yes)
    answer = _send_command(client, operation, "abandon")
    show(answer, nouns.OPERATION, form=form, text=nouns.operation_text)


@command.command("adopt", epilog=examples("tenure operation adopt ID runtime"))
@click.argument("operation")
@click.argument("step")
@click.option("--result", metavar="JSON", help="The result that the step would have returned.")
@wait_options
@output_option
@with_client
def adopt(
    client: Client, *, operation: str, step: str, result: str | None, waits: WaitOptions, form: str
) -> None:
    """Declare a stuck step as done; the operation goes on."""
    try:
        body = {"result": json.loads(result)} if result is not None else {}
    except ValueError as error:
        raise click.BadParameter(
            f"the result is not JSON: {error}", param_hint="--result"
        ) from None
    answer = _send_command(client, operation, "adopt", step=step, body=body)
    success = f"{answer['kind']} has succeeded"
    wait_and_report(client, answer, waits=waits, form=form, name=operation, success=success)


@command.command("mark-absent", epilog=examples("tenure operation mark-absent ID runtime"))
@click.argument("operation")
@click.argument("step")
@wait_options
@output_option
@with_client
def mark_absent(
    client: Client, *, operation: str, step: str, waits: WaitOptions, form: str
) -> None:
    """Declare that a stuck step has no resource; the operation goes on or is undone."""
    answer = _send_command(client, operation, "mark-absent", step=step)
    success = f"{answer['kind']} has succeeded"
    wait_and_report(client, answer, waits=waits, form=form, name=operation, success=success)
