"""`tenure tenant`: what holds for a tenant as a whole."""

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.options import Verbs, examples, output_option, with_client
from tenure.faces.cli.output import Item, show, table

NOUN = nouns.ACKNOWLEDGEMENT._replace(name=lambda one: "strict" if one["strict"] else "lenient")


@click.group(
    "tenant", cls=Verbs, epilog=examples("tenure tenant show", "tenure tenant set --strict")
)
def command() -> None:
    """Show whether the tenant is strict, and set it."""


def _text(tenant: Item) -> str:
    head = "strict" if tenant["strict"] else "not strict"
    if not tenant["missing"]:
        return f"{head}; nobody is waited for"
    columns = nouns.ACKNOWLEDGEMENT.columns[:4]
    rows = [[column.of(one) for column in columns] for one in tenant["missing"]]
    return f"{head}; these have not acknowledged:\n" + table([c.title for c in columns], rows)


@command.command("show", epilog=examples("tenure tenant show"))
@output_option
@with_client
def show_tenant(client: Client, *, form: str) -> None:
    """Show whether the tenant is strict, and which acknowledgements are missing."""
    show(client.get(path("tenant")), NOUN, form=form, text=_text)


@command.command(
    "set", epilog=examples("tenure tenant set --strict", "tenure tenant set --lenient")
)
@click.option(
    "--strict/--lenient",
    required=True,
    help="Refuse creates while an acknowledgement is missing, or accept them.",
)
@output_option
@with_client
def set_tenant(client: Client, *, strict: bool, form: str) -> None:
    """Refuse or accept creates while an acknowledgement is missing; for admins."""
    now = client.send(
        "PUT", path("tenant"), body={"strict": strict}, check_command="tenure tenant show"
    )
    show(now, NOUN, form=form, text=_text)
