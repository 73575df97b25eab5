"""`tenure reconcile`: let reconcilers look now."""

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

    They look by themselves as well. What they see is kept as findings: see tenure finding. Of
    several processes the one that is asked takes the lead.
    """
    body = {"name": name, "dry_run": dry_run}
    answer = client.send(
        "POST",
        "/v1/findings:reconcile",
        body=body,
        seconds=570.0,
        check_command="tenure audit list",
    )
    looks = list(answer["items"])
    show_all(looks, nouns.RECONCILE_PASS, form=form)
    if form in TABLES:
        for check_command in looks:
            for found in check_command["findings"]:
                say(f"  {found['kind']} {found['body']['what']}")
    failed = [str(check_command["reconciler"]) for check_command in looks if check_command["error"]]
    if failed:
        raise CommandExit(
            Exit.FAILED, f"{', '.join(failed)} could not look; see the log of the plane"
        )
