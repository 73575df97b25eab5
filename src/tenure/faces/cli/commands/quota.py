"""`tenure quota`: shows and sets how many agents a tenant may have."""

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.options import NounGroup, examples, output_option, with_client
from tenure.faces.cli.output import Item, count_of, show

QUOTA = path("quotas", "agents")


@click.group("quota", cls=NounGroup, epilog=examples("tenure quota show", "tenure quota set 100"))
def command() -> None:
    """Show the quota of agents, and set it."""


def _text(quota: Item) -> str:
    most = ", no limit" if quota["most"] is None else f" of {quota['most']}"
    return f"{count_of(quota['used'], str(quota['kind']).removesuffix('s'))}{most}"


@command.command("show", epilog=examples("tenure quota show", "tenure quota show -o json"))
@output_option
@with_client
def show_quota(client: Client, *, form: str) -> None:
    """Show the number of agents and its limit."""
    show(client.get(QUOTA), nouns.QUOTA, form=form, text=_text)


@command.command("set", epilog=examples("tenure quota set 100"))
@click.argument("most", type=click.IntRange(min=0))
@output_option
@with_client
def set_quota(client: Client, *, most: int, form: str) -> None:
    """Set the limit to MOST agents; existing agents stay."""
    now = client.send("PUT", QUOTA, body={"most": most}, check_command="tenure quota show")
    show(now, nouns.QUOTA, form=form, text=_text)
