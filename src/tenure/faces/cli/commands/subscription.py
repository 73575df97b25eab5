"""`tenure subscription`: manages subscriptions, their dead letters and their acknowledgements."""

import re

import click

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import CommandExit, Exit, ServerRefusal
from tenure.faces.cli.options import NounGroup, confirm, examples, output_option, with_client
from tenure.faces.cli.output import TABLES, Item, count_of, fields, instant, say, show, show_all

UUID = re.compile("[0-9a-f]{32}")
KINDS = ("webhook", "nats", "pull")
LIST = "tenure subscription list"
ID = click.argument("subscription_id", metavar="ID")
"""A subscription: its id, or its name if no other subscription has that name."""


@click.group(
    "subscription",
    cls=NounGroup,
    epilog=examples(
        "tenure subscription create billing --url https://billing.example/hooks",
        "tenure subscription show billing",
        "tenure subscription letters billing",
    ),
)
def command() -> None:
    """Subscribe to events, and see which were not delivered.

    As ID give the id of a subscription, or its name if no other subscription has that name.
    """


def _of(client: Client, name_or_id: str, *parts: str, verb: str = "") -> str:
    """The path of the subscription with this id or name."""
    if UUID.fullmatch(name_or_id) is None:
        matching_ids = [
            str(one["id"])
            for one in client.get(path("subscriptions"))["items"]
            if one["name"] == name_or_id
        ]
        if not matching_ids:
            raise CommandExit(
                Exit.FAILED,
                f"there is no subscription {name_or_id}, by id or by name",
                advice=LIST,
            )
        if len(matching_ids) > 1:
            raise CommandExit(
                Exit.USAGE,
                f"several subscriptions are called {name_or_id}: {', '.join(matching_ids)}",
                advice="use the id of one of them",
            )
        name_or_id = matching_ids[0]
    return path("subscriptions", name_or_id, *parts, verb=verb)


def _text(one: Item) -> str:
    return fields(
        [
            ("id", str(one["id"])),
            ("name", str(one["name"])),
            ("kind", str(one["kind"])),
            ("target", str(one["target"])),
            ("agent", str(one["agent"])),
            ("types", ", ".join(one["types"]) or "all"),
            ("required", "yes" if one["required"] else ""),
            ("position", "" if one["position"] is None else str(one["position"])),
            ("failing since", instant(one["failing_since"])),
            ("next try", instant(one["next_try"])),
            ("why", str(one["why"])),
            ("parked agents", str(one["parked"] or "")),
            ("missed events", str(one["missed"] or "")),
            ("created", instant(one["created_at"])),
            (
                "changed",
                instant(one["updated_at"]) if one["updated_at"] > one["created_at"] else "",
            ),
        ]
    )


@command.command(
    "create",
    epilog=examples(
        "tenure subscription create billing --url https://billing.example/hooks --type 'agent.*'",
        "tenure subscription create audit --kind pull --required",
    ),
)
@click.argument("name")
@click.option(
    "--kind", type=click.Choice(KINDS), help="The kind of delivery; --url or --subject imply it."
)
@click.option("--url", default="", metavar="URL", help="The URL of a webhook.")
@click.option(
    "--subject", default="", metavar="WORDS", help="A NATS subject: tenure.to.TENANT.WORDS.…"
)
@click.option(
    "--agent", default="", metavar="NAME", help="Only events of this agent, by name or uid."
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    help="Only events of this type; may be repeated.",
)
@click.option(
    "--required",
    is_flag=True,
    help="Suspends and deletes wait for this subscriber's acknowledgement.",
)
@click.option("--from-start", is_flag=True, help="Also deliver stored events of the past.")
@output_option
@with_client
def create(
    client: Client,
    *,
    name: str,
    kind: str | None,
    url: str,
    subject: str,
    agent: str,
    types: tuple[str, ...],
    required: bool,
    from_start: bool,
    form: str,
) -> None:
    """Create a subscription; the secret of a webhook is printed only now."""
    kind = kind or ("webhook" if url else "nats" if subject else None)
    if kind is None:
        raise CommandExit(
            Exit.USAGE,
            "the destination of its events is missing",
            advice="--url URL (a webhook), --subject WORDS (NATS), or --kind pull if the"
            " subscriber reads events itself",
        )
    body = {
        "name": name,
        "kind": kind,
        "target": url or subject,
        "agent": agent,
        "types": list(types),
        "required": required,
        "from_start": from_start,
    }
    try:
        subscription = client.send("POST", path("subscriptions"), body=body, check_command=LIST)
    except ServerRefusal as refused:
        if refused.problem_code == "quota_exceeded":
            refused.advice = LIST  # `tenure quota` shows only the quota of agents
        raise
    if form in TABLES:
        say(f"subscription {subscription['id']}")
    _print_secret(subscription, form)
    show(
        subscription,
        nouns.SUBSCRIPTION,
        form=form,
        text=lambda one: str(one["secret"] or one["id"]),
    )


@command.command(
    "list", epilog=examples("tenure subscription list", "tenure subscription list -o wide")
)
@output_option
@with_client
def list_subscriptions(client: Client, *, form: str) -> None:
    """List subscriptions, oldest first."""
    show_all(client.get(path("subscriptions"))["items"], nouns.SUBSCRIPTION, form=form)


@command.command("show", epilog=examples("tenure subscription show billing"))
@ID
@output_option
@with_client
def show_subscription(client: Client, *, subscription_id: str, form: str) -> None:
    """Show a subscription and its progress."""
    one = client.get(_of(client, subscription_id))
    show(one, nouns.SUBSCRIPTION, form=form, text=_text)


@command.command("delete", epilog=examples("tenure subscription delete billing"))
@ID
@output_option
@with_client
def delete(client: Client, *, subscription_id: str, form: str) -> None:
    """Delete a subscription; operations no longer wait for its acknowledgements."""
    subscription = client.send("DELETE", _of(client, subscription_id), check_command=LIST)
    if form in TABLES:
        say(f"subscription {subscription['name']} is deleted")
    else:
        show(subscription, nouns.SUBSCRIPTION, form=form, text=str)


@command.command("rotate", epilog=examples("tenure subscription rotate billing > secret"))
@ID
@output_option
@with_client
def rotate(client: Client, *, subscription_id: str, form: str) -> None:
    """Make a new secret and print it; for a day deliveries are also signed with the old one."""
    where = _of(client, subscription_id, verb="rotate")
    check_command = f"tenure subscription show {subscription_id}"
    subscription = client.send("POST", where, check_command=check_command)
    _print_secret(subscription, form)
    show(subscription, nouns.SUBSCRIPTION, form=form, text=lambda one: str(one["secret"]))


def _print_secret(subscription: Item, form: str) -> None:
    """Print the secret also with `-o name`: it cannot be read again."""
    if form == "name" and subscription["secret"]:
        say(f"its secret, shown here and nowhere else: {subscription['secret']}")


@command.command("letters", epilog=examples("tenure subscription letters billing"))
@ID
@output_option
@with_client
def letters(client: Client, *, subscription_id: str, form: str) -> None:
    """List dead letters: events that the destination did not accept."""
    found = client.pages(_of(client, subscription_id, "dead-letters"))
    show_all(list(found), nouns.LETTER, form=form)


@command.command(
    "replay",
    epilog=examples(
        "tenure subscription replay billing",
        "tenure subscription replay billing --agent hello",
    ),
)
@ID
@click.option(
    "--agent", default="", metavar="NAME", help="Only events of this agent, by name or uid."
)
@output_option
@with_client
def replay(client: Client, *, subscription_id: str, agent: str, form: str) -> None:
    """Deliver dead letters again now."""
    result = _letters(client, subscription_id, agent, verb="replay")
    none = "there are no dead letters; if deliveries fail, the next attempt is made now"
    _show_letters(result, "are sent again", none, form=form)


@command.command(
    "discard",
    epilog=examples(
        "tenure subscription discard billing --agent hello",
        "tenure subscription discard billing --yes",
    ),
)
@ID
@click.option(
    "--agent", default="", metavar="NAME", help="Only events of this agent, by name or uid."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option
@with_client
def discard(client: Client, *, subscription_id: str, agent: str, yes: bool, form: str) -> None:
    """Discard dead letters, so that later events are delivered."""
    one = client.get(_of(client, subscription_id))
    if one["parked"]:
        whose = f"agent {agent}" if agent else count_of(one["parked"], "agent")
        confirm(f"the dead letters of {whose} will never be sent to {one['name']}", yes=yes)
    result = _letters(client, str(one["id"]), agent, verb="discard")
    _show_letters(result, "are discarded", "there are no dead letters", form=form)


def _letters(client: Client, name: str, agent: str, *, verb: str) -> Item:
    where = _of(client, name, "dead-letters", verb=verb)
    result: Item = client.send(
        "POST", where, body={"agent": agent}, check_command=f"tenure subscription letters {name}"
    )
    return result


def _show_letters(result: Item, outcome: str, empty_text: str, *, form: str) -> None:
    """Print for how many agents dead letters were replayed or discarded."""
    noun = nouns.SUBSCRIPTION._replace(name=lambda one: str(one["agents"]))
    text = f"the dead letters of {count_of(result['agents'], 'agent')} {outcome}"
    show(result, noun, form=form, text=lambda one: text if one["agents"] else empty_text)


@command.command("waits", epilog=examples("tenure subscription waits billing"))
@ID
@output_option
@with_client
def waits(client: Client, *, subscription_id: str, form: str) -> None:
    """List the operations that wait, or waited, for this subscriber; open ones first."""
    found = client.get(_of(client, subscription_id, "acknowledgements"))["items"]
    show_all(found, nouns.ACKNOWLEDGEMENT, form=form)


@command.command(
    "acknowledge",
    epilog=examples(
        "tenure subscription acknowledge ID OPERATION",
        "tenure subscription acknowledge ID OPERATION --override 'it is switched off'",
    ),
)
@ID
@click.argument("operation")
@click.option(
    "--override", metavar="WHY", help="Acknowledge in the subscriber's place, with a reason."
)
@output_option
@with_client
def acknowledge(
    client: Client, *, subscription_id: str, operation: str, override: str | None, form: str
) -> None:
    """Acknowledge OPERATION for a subscriber, so that it does not wait for it any longer."""
    body = {"operation": operation} | ({} if override is None else {"override": override})
    where = _of(client, subscription_id, "acknowledgements")
    check_command = f"tenure subscription waits {subscription_id}"
    result = client.send("POST", where, body=body, check_command=check_command)
    text = f"{result['name']} has acknowledged operation {operation}"
    if override is not None:
        text = f"operation {operation} no longer waits for {result['name']}"
    show(result, nouns.ACKNOWLEDGEMENT, form=form, text=lambda _: text)
