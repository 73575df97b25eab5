"""`tenure token`: creates, lists and revokes API tokens."""

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.options import NounGroup, examples, output_option, with_client
from tenure.faces.cli.output import TABLES, say, show, show_all

ROLES = ("viewer", "operator", "approver", "admin")
LIST = "tenure token list"


@click.group(
    "token",
    cls=NounGroup,
    epilog=examples(
        "tenure token create ci --role operator > ci.token",
        "tenure token list",
        "tenure token revoke ID",
    ),
)
def command() -> None:
    """Create, list and revoke API tokens; for admins."""


@command.command(
    "create",
    epilog=examples(
        "tenure token create ci --role operator > ci.token",
        "tenure token create eve --role viewer --seconds 86400",
    ),
)
@click.argument("principal")
@click.option("--role", type=click.Choice(ROLES), required=True, help="The role of the token.")
@click.option("--tenant", default="", metavar="NAME", help="The tenant, if it is not yours.")
@click.option(
    "--seconds",
    type=float,
    metavar="N",
    help="The lifetime; without it, until the token is revoked.",
)
@output_option
@with_client
def create(
    client: Client, *, principal: str, role: str, tenant: str, seconds: float | None, form: str
) -> None:
    """Create a token for PRINCIPAL; it is printed only now."""
    body = {"principal": principal, "role": role, "tenant": tenant, "seconds": seconds}
    made = client.send("POST", path("tokens"), body=body, check_command=LIST)
    if form in TABLES:
        say(f"token {made['id']} for {principal} as {role}")
    if form == "name":
        say(f"the token, which is shown only here: {made['token']}")
    show(made, nouns.TOKEN, form=form, text=lambda one: str(one["token"]))


@command.command("list", epilog=examples("tenure token list", "tenure token list --tenant acme"))
@click.option("--tenant", default="", metavar="NAME", help="The tenant, if it is not yours.")
@output_option
@with_client
def list_tokens(client: Client, *, tenant: str, form: str) -> None:
    """List tokens, revoked and expired ones included."""
    query = {"tenant": tenant} if tenant else {}
    show_all(client.get(path("tokens"), query)["items"], nouns.TOKEN, form=form)


@command.command("revoke", epilog=examples("tenure token revoke ID"))
@click.argument("token_id", metavar="ID")
@output_option
@with_client
def revoke(client: Client, *, token_id: str, form: str) -> None:
    """Revoke a token by its id."""
    gone = client.send("DELETE", path("tokens", token_id), check_command=LIST)
    if form in TABLES:
        say(f"token {token_id} of {gone['principal']} is revoked")
    else:
        show(gone, nouns.TOKEN, form=form, text=str)
