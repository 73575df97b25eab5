"""`tenure audit`: lists the audit log and verifies that it was not changed."""

import re
from itertools import islice

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.options import NounGroup, examples, output_option, with_client
from tenure.faces.cli.output import TABLES, Item, fields, say, show, show_all

HEAD = re.compile("[0-9a-f]{64}")
KEEP = "before anything else, keep what there is: tenure backup DIRECTORY"


@click.group(
    "audit", cls=NounGroup, epilog=examples("tenure audit list --limit 20", "tenure audit verify")
)
def command() -> None:
    """Read the audit log and verify its hash chain; for admins."""


@command.command(
    "list",
    epilog=examples(
        "tenure audit list --limit 20",
        "tenure audit list --after 1000 -o json",
    ),
)
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="N", help="Start after line N."
)
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="The largest number of lines."
)
@output_option
@with_client
def list_audit(client: Client, *, after: int, limit: int | None, form: str) -> None:
    """List the audit log, oldest first."""
    query = {"after": after, **({"limit": min(limit, 1_000)} if limit else {})}
    found = islice(client.pages(path("audit"), query), limit)
    show_all(list(found), nouns.ENTRY, form=form)


def _text(verdict: Item) -> str:
    broken = verdict["broken"]
    line = f"line {broken['position']}: {broken['why']}" if broken else ""
    return fields(
        [
            ("entries", str(verdict["entries"])),
            ("head", str(verdict["head"])),
            ("broken", broken["why"] if broken and broken["head_missing"] else line),
        ]
    )


def _head(_: click.Context, option: click.Parameter, value: str) -> str:
    value = value.strip().lower()
    if value and not HEAD.fullmatch(value):
        raise click.BadParameter("a head is 64 digits of 0-9 and a-f", param=option)
    return value


@command.command(
    "verify",
    epilog=examples(
        "tenure audit verify -o name > head",
        "tenure audit verify --head $(cat head)",
    ),
)
@click.option(
    "--head",
    default="",
    metavar="HASH",
    callback=_head,
    help="A head hash that you exported before.",
)
@output_option
@with_client
def verify(client: Client, *, head: str, form: str) -> None:
    """Verify the hash chain of the audit log; exit 1 if a line was changed.

    Missing lines at the end are detected only with an earlier head: the server remembers the last
    head that it has seen, and --head is one that you exported before.
    """
    verdict = client.get(path("audit", "verify"), {"head": head} if head else None, seconds=570.0)
    name = nouns.ENTRY._replace(name=lambda one: str(one["head"]))
    show(verdict, name, form=form, text=_text)
    broken = verdict["broken"]
    if broken and broken["head_missing"]:
        perhaps = ", or it is not a head of this log" if head else ""
        raise CommandExit(
            Exit.FAILED,
            f"none of the {verdict['entries']} lines has that head: the audit log was truncated or"
            f" rewritten since{perhaps}",
            advice=KEEP,
        )
    if broken:
        raise CommandExit(
            Exit.FAILED,
            f"the audit log was changed: the lines before {broken['position']} are intact, that"
            " line is not",
            advice=KEEP,
        )
    if form in TABLES:
        if head:
            say("the chain is unbroken, and that head is in it")
        else:
            say("the chain is unbroken, and has the last line that the server remembers")
