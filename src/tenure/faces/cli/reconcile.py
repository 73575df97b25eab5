"""`tenure reconcile`: let reconcilers look now."""

import time
from typing import Any

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client
from tenure.faces.cli.exits import Ended, Exit, Refused
from tenure.faces.cli.options import asking, examples, shown
from tenure.faces.cli.output import say, show_all

WAIT_SECONDS = 20.0
"""A little longer than the lease of a leader that was killed stands."""
AGAIN_SECONDS = 0.5


@click.command(
    "reconcile", epilog=examples("tenure reconcile --dry-run", "tenure reconcile orphans")
)
@click.argument("name", required=False, default="")
@click.option("--dry-run", is_flag=True, help="Say what is seen; change nothing.")
@click.option(
    "--wait", "wait_seconds", type=click.FloatRange(min=0), default=WAIT_SECONDS, metavar="SECONDS",
    show_default=True, help="How long to wait for the lead, if another process has it.",
)
@shown
@asking
def command(
    client: Client, *, name: str, dry_run: bool, wait_seconds: float, form: str
) -> None:
    """Let the reconciler NAME look now, or all of them, and say what came of it; for admins.

    They look by themselves as well. What they see is kept as findings: see tenure finding. After a
    crash the lead of the process that died is waited for: it lapses within 15 s.
    """
    looks = _looks(client, name, dry_run=dry_run, wait_seconds=wait_seconds)
    show_all(looks, nouns.LOOK, form=form)
    if form == "table":
        for look in looks:
            for found in look["findings"]:
                say(f"  {found['kind']} {found['body']['what']}")
    failed = [str(look["reconciler"]) for look in looks if look["error"]]
    if failed:
        raise Ended(Exit.FAILED, f"{', '.join(failed)} could not look; see the log of the plane")


def _looks(client: Client, name: str, *, dry_run: bool, wait_seconds: float) -> list[Any]:
    """What came of it, as soon as the process that is asked leads."""
    body = {"name": name, "dry_run": dry_run}
    until, told = time.monotonic() + wait_seconds, False
    while True:
        try:
            answer = client.send("POST", "/v1/findings:reconcile", body=body, seconds=570.0)
            return list(answer["items"])
        except Refused as refused:
            left = until - time.monotonic()
            if refused.problem_code != "not_leading" or dry_run or left <= 0:
                raise
            if not told:
                say(f"waiting for the lead, {left:.0f} s at most: {refused}")
                told = True
        time.sleep(min(AGAIN_SECONDS, left))
