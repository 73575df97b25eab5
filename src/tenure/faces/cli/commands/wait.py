"""`tenure wait`: returns when the control plane is ready, for a script that has just started it."""

import time

import click

from tenure.faces.cli.client import ANSWER_SECONDS, Client, retry_until
from tenure.faces.cli.exits import CommandExit, Exit, ServerRefusal, Unreachable
from tenure.faces.cli.options import examples, with_client

UNREADY = 503
LOOK_SECONDS = 1.0
"""What a look is given at least."""


@click.command("wait", epilog=examples("tenure up &", "tenure wait && tenure agent list"))
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="The longest time to wait; then the exit code is 5.",
)
@with_client
def command(client: Client, *, timeout: float) -> None:
    """Wait until the control plane answers and is ready."""
    try:
        until = time.monotonic() + timeout
        retry_until(lambda: _ready(client, until), until=until)
    except Unreachable as error:
        said = f"not ready after {timeout:g} s: {error.sentence}"
        raise CommandExit(Exit.TIMED_OUT, said, advice=error.advice) from None


def _ready(client: Client, until: float) -> None:
    client.patience = max(LOOK_SECONDS, min(ANSWER_SECONDS, until - time.monotonic()))
    try:
        client.get("/readyz")
    except ServerRefusal as refused:
        if refused.status != UNREADY:
            raise
        raise Unreachable(refused.sentence) from None
