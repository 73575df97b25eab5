"""`tenure tenant`: shows and sets whether a tenant is strict.

A strict tenant refuses creates while a required acknowledgement is missing.
"""

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.options import NounGroup, examples, output_option, with_client
from tenure.faces.cli.output import Item, show, table

NOUN = nouns.ACKNOWLEDGEMENT._replace(name=lambda one: "strict" if one["strict"] else "lenient")


@click.group(
    "tenant", cls=NounGroup, epilog=examples("tenure tenant show", "tenure tenant set --strict")
)
def command() -> None:
    """Show or set whether creates are refused while an acknowledgement is missing.

    A tenant for which they are refused is called strict.
    """


def _text(tenant: Item) -> str:
    head = "strict" if tenant["strict"] else "not strict"
    if not tenant["missing"]:
        return f"{head}; no acknowledgement is missing"
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
