"""`tenure finding`: lists findings of the reconcilers and resolves them."""

from collections.abc import Sequence
from itertools import islice

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.options import NounGroup, confirm, examples, output_option, with_client
from tenure.faces.cli.output import TABLES, Item, fields, instant, say, show, show_all

LIST = "tenure finding list"


@click.group(
    "finding",
    cls=NounGroup,
    epilog=examples(
        "tenure finding list",
        "tenure finding show ID",
        "tenure finding resolve ID",
    ),
)
def command() -> None:
    """Read the findings of reconcilers, and resolve them."""


@command.command(
    "list", epilog=examples("tenure finding list", "tenure finding list --all --reconciler drift")
)
@click.option("--all", "resolved", is_flag=True, help="Include resolved findings.")
@click.option("--reconciler", default="", metavar="NAME", help="Only findings of this reconciler.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="The largest number of findings."
)
@output_option
@with_client
def list_findings(
    client: Client, *, resolved: bool, reconciler: str, limit: int | None, form: str
) -> None:
    """List open findings."""
    query: dict[str, object] = {"reconciler": reconciler} if reconciler else {}
    if resolved:
        query["resolved"] = "true"
    noun = nouns.FINDING_OF_ALL if resolved else nouns.FINDING
    show_all(list(islice(client.pages(path("findings"), query), limit)), noun, form=form)


def _text(finding: Item) -> str:
    body = dict(finding["body"])
    return fields(
        [
            ("id", str(finding["id"])),
            ("kind", str(finding["kind"])),
            ("reconciler", str(finding["reconciler"])),
            ("what", str(body.pop("what", ""))),
            ("agent", str(finding["agent"])),
            ("resource", str(finding["resource"])),
            *(
                (name, instant(value) if name.endswith(("_at", "since")) else str(value))
                for name, value in sorted(body.items())
            ),
            ("first seen", instant(finding["first_seen"])),
            ("last seen", instant(finding["last_seen"])),
            ("sightings", str(finding["sightings"])),
            ("resolved", instant(finding["resolved_at"])),
            ("by", str(finding["resolved_by"])),
        ]
    )


@command.command(
    "show", epilog=examples("tenure finding show $(tenure finding list --limit 1 -o name)")
)
@click.argument("finding_id", metavar="ID")
@output_option
@with_client
def show_finding(client: Client, *, finding_id: str, form: str) -> None:
    """Show one finding."""
    show(client.get(path("findings", finding_id)), nouns.FINDING, form=form, text=_text)


@command.command("remove", epilog=examples("tenure finding remove ID --yes"))
@click.argument("finding_ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--tenant", default="", metavar="NAME", help="The tenant of the resource, if it is not yours."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option
@with_client
def remove(
    client: Client, *, finding_ids: tuple[str, ...], tenant: str, yes: bool, form: str
) -> None:
    """Remove resources that providers hold and the plane does not know, as after a restore.

    The plane never does it by itself. For admins.
    """
    found = [client.get(path("findings", finding_id)) for finding_id in finding_ids]
    for one in () if yes else found:
        say(str(one["body"].get("what", "")))
    whose = "its provider" if len(found) == 1 else "their providers"
    confirm(f"{_resources(found)} will be removed at {whose}, for good", yes=yes)
    done: list[Item] = []
    for one in found:
        where = path("findings", str(one["id"]), verb="remove")
        done.append(client.send("POST", where, body={"tenant": tenant}, check_command=LIST))
        if form in TABLES:
            say(f"{_resources([one])} is removed")
    if form not in TABLES:
        show_all(done, nouns.FINDING, form=form)


def _resources(found: Sequence[Item]) -> str:
    """The resources of findings, each as provider and key."""
    about = ((one["body"].get("provider", "resource"), one["resource"]) for one in found)
    return ", ".join(f"{provider} {key}" for provider, key in about)


@command.command(
    "resolve", epilog=examples("tenure finding resolve $(tenure finding list -o name)")
)
@click.argument("finding_ids", metavar="ID...", nargs=-1, required=True)
@output_option
@with_client
def resolve(client: Client, *, finding_ids: tuple[str, ...], form: str) -> None:
    """Resolve findings; a discrepancy that still exists is reported again."""
    done = [
        client.send("POST", path("findings", finding_id, verb="resolve"), check_command=LIST)
        for finding_id in finding_ids
    ]
    if form in TABLES:
        say(f"{len(done)} resolved")
    else:
        show_all(done, nouns.FINDING, form=form)
