"""`tenure event`: lists stored events and follows new ones."""

import json
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import urlencode

import click

from tenure.core.limits import POSITION_MAX
from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, ConnectionBroken, path
from tenure.faces.cli.exits import CommandExit, Exit, Unreachable
from tenure.faces.cli.options import Command, NounGroup, examples, output_option, with_client
from tenure.faces.cli.output import say, show_all

SILENCE_SECONDS = 30.0
"""A stream without data for so long is dead: the server sends a heartbeat every few seconds."""
AGAIN_SECONDS = 1.0


class Position(click.ParamType[int]):
    """The id of an event, or the position at its start."""

    name = "id"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """The position."""
        position = str(value).partition("-")[0]
        if not position.isdecimal() or int(position) > POSITION_MAX:
            sentence = f"{value!r} is not the id of an event, as `tenure event list` shows it"
            self.fail(sentence, param, ctx)
        return int(position)


POSITION = Position()


@click.group(
    "event", cls=NounGroup, epilog=examples("tenure event list --agent hello", "tenure event watch")
)
def command() -> None:
    """List events, and follow new ones."""


def filter_options(command_function: Command) -> Command:
    """Add --agent, --type and --operation."""
    for option, hint, help_text in (
        ("--operation", "ID", "Only events of this operation."),
        ("--agent", "NAME", "Only events of this agent, by name or uid."),
    ):
        command_function = click.option(option, default="", metavar=hint, help=help_text)(
            command_function
        )
    return click.option(
        "--type",
        "types",
        multiple=True,
        metavar="TYPE",
        help="Only events of this type, such as agent.suspended or agent.*; may be repeated.",
    )(command_function)


def _query(agent: str, types: tuple[str, ...], operation: str) -> dict[str, object]:
    query: dict[str, object] = {"type": types} if types else {}
    return query | {k: v for k, v in (("agent", agent), ("operation", operation)) if v}


@command.command(
    "list", epilog=examples("tenure event list --agent hello", "tenure event list --type 'agent.*'")
)
@filter_options
@click.option("--after", type=POSITION, default=0, metavar="ID", help="Start after this event.")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="The largest number of events."
)
@output_option
@with_client
def list_events(
    client: Client,
    *,
    agent: str,
    types: tuple[str, ...],
    operation: str,
    after: int,
    limit: int | None,
    form: str,
) -> None:
    """List the stored events, oldest first."""
    query = {**_query(agent, types, operation), "after": after}
    if limit:
        query["limit"] = min(limit, 1_000)
    found = islice(client.pages(path("events"), query), limit)
    show_all(list(found), nouns.EVENT, form=form)


@command.command(
    "watch",
    epilog=examples("tenure event watch", "tenure event watch --type 'agent.*' -o json"),
)
@filter_options
@click.option("--after", type=POSITION, metavar="ID", help="Start after this event instead of now.")
@output_option
@with_client
def watch(
    client: Client,
    *,
    agent: str,
    types: tuple[str, ...],
    operation: str,
    after: int | None,
    form: str,
) -> None:
    """Print new events until interrupted; with -o json each event is one line.

    If the server goes away, the command waits for it.  It ends if the token is no longer valid.
    """
    query = _query(agent, types, operation)
    try:
        _watch(client, query, after if after is not None else _now(client), form)
    except KeyboardInterrupt:
        raise CommandExit(Exit.INTERRUPTED) from None


def _watch(client: Client, query: dict[str, object], last: int, form: str) -> None:
    while True:
        try:
            for position, event in _stream(client, query, last):
                last = position
                _print(event, form)
            say("the server has ended the stream; continuing after the last event")
        except ConnectionBroken:
            say("the connection broke; continuing after the last event")
        except Unreachable as error:
            say(error.sentence)
        time.sleep(AGAIN_SECONDS)


def _now(client: Client) -> int:
    """The position of the newest event."""
    page = client.get(path("events"), {"after": POSITION_MAX, "limit": 1})
    return int(page["position"])


def _stream(
    client: Client, query: dict[str, object], last: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
    query_string = f"?{urlencode(query, doseq=True)}" if query else ""
    with client.stream(
        "GET", path("events") + query_string, headers=headers, seconds=SILENCE_SECONDS
    ) as answer:
        if answer.status != 200:  # noqa: PLR2004 (the one that streams)
            raise client.refusal(answer)
        position, name = last, ""
        for line in client.lines(answer):
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "id":
                position = int(value)
            elif field == "event":
                name = value
            elif field == "data" and name == "missed":
                say("some events were missed: they are no longer stored")
            elif field == "data":
                yield position, json.loads(value)


def _print(event: dict[str, Any], form: str) -> None:
    match form:
        case "json":
            click.echo(json.dumps(event, ensure_ascii=False))
        case "name":
            click.echo(event["id"])
        case "yaml":
            from tenure.faces.cli.output import as_yaml

            click.echo(f"---\n{as_yaml(event)}", nl=False)
        case _:
            cells = [column.of(event) for column in nouns.EVENT.columns[:-1]]
            click.echo("  ".join(cells))
