"""`tenure reconcile`: runs reconcilers now."""

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.options import examples, output_option, with_client
from tenure.faces.cli.output import TABLES, say, show_all


@click.command(
    "reconcile", epilog=examples("tenure reconcile --dry-run", "tenure reconcile orphans")
)
@click.argument("name", required=False, default="")
@click.option("--dry-run", is_flag=True, help="Report what is found; change nothing.")
@output_option
@with_client
def command(client: Client, *, name: str, dry_run: bool, form: str) -> None:
    """Run the reconciler NAME now, or all of them, and show the results; for admins.

    They also run by themselves. Their findings are stored: see tenure finding. Of several
    processes the one that gets the request becomes the leader.
    """
    body = {"name": name, "dry_run": dry_run}
    answer = client.send(
        "POST",
        "/v1/findings:reconcile",
        body=body,
        seconds=570.0,
        check_command="tenure audit list",
    )
    passes = list(answer["items"])
    show_all(passes, nouns.RECONCILE_PASS, form=form)
    if form in TABLES:
        for one in passes:
            for finding in one["findings"]:
                say(f"  {finding['kind']} {finding['body']['what']}")
    failed = [str(one["reconciler"]) for one in passes if one["error"]]
    if failed:
        raise CommandExit(Exit.FAILED, f"{', '.join(failed)} failed; see the log of the plane")
