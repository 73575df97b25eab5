"""`tenure wait`: returns when the control plane is ready, for a script that has just started it."""

import time

import click

from tenure.faces.cli.client import ANSWER_SECONDS, Client, retry_until
from tenure.faces.cli.exits import CommandExit, Exit, ServerRefusal, Unreachable
from tenure.faces.cli.options import examples, with_client

UNREADY = 503
PROBE_SECONDS_MIN = 1.0
"""The shortest timeout of one request."""


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
        sentence = f"not ready after {timeout:g} s: {error.sentence}"
        raise CommandExit(Exit.TIMED_OUT, sentence, advice=error.advice) from None


def _ready(client: Client, until: float) -> None:
    client.timeout = max(PROBE_SECONDS_MIN, min(ANSWER_SECONDS, until - time.monotonic()))
    try:
        client.get("/readyz")
    except ServerRefusal as refused:
        if refused.status != UNREADY:
            raise
        raise Unreachable(refused.sentence) from None
