"""`tenure restore`: puts a backup into a home while no plane runs there; later lets the plane go.

The first half works on files; `--confirm` asks the plane that was started since.
"""

from pathlib import Path
from typing import Any

import click

from tenure.core.errors import TenureError
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.options import (
    confirm,
    examples,
    output_option,
    server_location,
    server_options,
)
from tenure.faces.cli.output import Column, Item, Noun, say, show, table

SHOWN = 20
"""Lines of each kind that are shown before asking; `tenure restore --review` prints the rest."""
EPOCH = Noun((Column("EPOCH", lambda one: str(one["epoch"])),), lambda one: str(one["epoch"]))


@click.command(
    "restore",
    epilog=examples(
        "tenure restore /srv/backups/2026-11-17", "tenure up", "tenure restore --confirm"
    ),
)
@click.argument("source", metavar="[DIRECTORY]", required=False, type=click.Path(path_type=Path))
@click.option("--review", is_flag=True, help="Show what confirming would change.")
@click.option("--confirm", "confirmed", is_flag=True, help="Show the review and end the pause.")
@click.option(
    "--hold", "held", is_flag=True, help="Pause a plane whose store was restored by other means."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@output_option
@server_options
@click.pass_context
def command(
    context: click.Context,
    *,
    source: Path | None,
    review: bool,
    confirmed: bool,
    held: bool,
    yes: bool,
    form: str,
) -> None:
    """Put the backup in DIRECTORY into the home, whose plane must be stopped.

    The backup is verified first.  A new epoch begins: every token that was issued before is void,
    and the next `tenure up` makes a new one for the admin.  Providers' files that are there and
    whole stay as they are, so that nothing revoked or deleted since comes back: agents deleted or
    suspended since are not started again.  What is replaced is kept aside.  Into an empty home
    those files are restored too: all is as it was at the backup, and agents that were READY then
    are started again once the plane is confirmed, unless it runs with `--drift report`.

    The plane then starts held: it answers reads and moves nothing, and nothing is deleted at any
    provider, until `tenure restore --confirm` has shown what would happen and was told to go on.
    """
    if sum((source is not None, review, confirmed, held)) != 1:
        raise CommandExit(
            Exit.USAGE,
            "say one of: a directory, --review, --confirm, --hold",
            advice="see tenure restore --help",
        )
    if review or confirmed:
        client = Client(server_location(context))
        try:
            _confirm(client, yes=yes, form=form) if confirmed else _review(client, form=form)
        finally:
            client.close()
        return
    home = server_location(context).directory()
    try:
        if source is None:
            _hold(home, yes=yes, form=form)
        else:
            _restore(source, home, yes=yes, form=form)
    except TenureError as error:
        raise CommandExit(Exit.FAILED, str(error)) from None
    except OSError as error:
        raise CommandExit(
            Exit.FAILED,
            f"{error.filename or home}: {error.strerror}",
            advice="the plane does not start before a restore has ended: say it again",
        ) from None


def _restore(source: Path, home: Path, *, yes: bool, form: str) -> None:
    from tenure.upkeep.backup import MANIFEST
    from tenure.upkeep.homes import STORE
    from tenure.upkeep.restore import restore
    from tenure.wiring import files_of_a_home

    if (home / STORE).exists() and (source / MANIFEST).exists():  # else it says what is missing
        confirm(f"the store in {home} will be replaced, and kept aside", yes=yes)
    done = restore(source.absolute(), home, files_of_a_home(), report=say)
    if any(done.aside.iterdir()):
        say(f"what was there is kept in {done.aside}")
    start = f"tenure up --home {home}"
    if done.store:
        say(
            f"the store was not in this backup and is as it was: {done.store}. If its records are"
            " to be those of the backup too, put back the dump that was made with it (pg_restore)"
            " before anything is started"
        )
        start += " --store URL, before any worker"
    say(f"next: {start}, then tenure restore --confirm --home {home}")
    item = {**done._asdict(), "aside": str(done.aside)}
    what = "the home is restored, its store is not" if done.store else "restored"
    show(item, EPOCH, form=form, text=lambda one: f"{what}; epoch {one['epoch']}")


def _hold(home: Path, *, yes: bool, form: str) -> None:
    from tenure.upkeep.restore import hold
    from tenure.wiring import files_of_a_home

    confirm(f"every token of {home} will be void, and the plane held", yes=yes)
    item = {"epoch": hold(home, files_of_a_home())}
    show(item, EPOCH, form=form, text=lambda one: f"held; epoch {one['epoch']}")


def _review(client: Client, *, form: str) -> None:
    show(_get_review(client), EPOCH, form=form, text=lambda seen: describe_review(seen, most=1_000))


def _confirm(client: Client, *, yes: bool, form: str) -> None:
    """Show what ending the pause would change, and end it."""
    seen = _get_review(client)
    say(describe_review(seen, most=SHOWN))
    if not seen["held"]:
        raise CommandExit(Exit.FAILED, "the plane is not held: there is nothing to confirm")
    confirm("operations will move again", yes=yes)
    told = client.send("POST", path("plane", verb="confirm"), look="tenure restore --review")
    show(told, EPOCH, form=form, text=lambda one: f"the plane is let go; epoch {one['epoch']}")


def _get_review(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get(path("plane", "review"), seconds=120.0)
    return found


def describe_review(seen: Item, *, most: int) -> str:
    """A review as text, with at most so many lines of each kind."""
    parts = [
        f"epoch {seen['epoch']}; held: {seen['held'] or 'no'}",
        f"{seen['open_operations']} open operations will be resumed"
        + _lines(seen["resumed"], ("operation", "kind", "state", "agent"), most),
        f"{seen['missing_resources']} resources are in the store, and their providers lack them;"
        " nothing that was deleted is\nmade anew. An agent that lacks more than its runtime looks"
        " deleted since: tenure agent delete NAME"
        + _lines(seen["missing"], ("name", "slot", "key", "agent"), most),
        f"{seen['started_agents']} agents lack only a runtime that lives, and will be started again"
        " (where drift is\nrepaired)" + _lines(seen["started"], ("name", "tenant", "agent"), most),
        f"{seen['shut_agents']} agents are READY in the store and shut at their provider: they look"
        " suspended since. None is\nstarted again: tenure agent suspend NAME, and tenure agent"
        " resume NAME if it shall run" + _lines(seen["shut"], ("name", "tenant", "agent"), most),
        f"{seen['untold_agents']} agents are READY in the store, and whether they were suspended"
        " or will be started again cannot\nbe told: a provider does not say, or more of them is not"
        " as recorded" + _lines(seen["untold"], ("name", "tenant", "agent"), most),
        f"{seen['unknown_resources']} resources are at providers, and the store knows nothing of"
        " them; the plane never\ndeletes them. Once it is let go they are findings:"
        " tenure finding remove ID" + _lines(seen["unknown"], ("slot", "key", "agent"), most),
        *(f"not looked at: {sentence}" for sentence in seen["silent"]),
    ]
    return "\n\n".join(parts)


def _lines(items: list[dict[str, Any]], columns: tuple[str, ...], most: int) -> str:
    if not items:
        return ""
    rows = [[str(one[column]) for column in columns] for one in items[:most]]
    more = "\n… tenure restore --review shows more" if len(items) > most else ""
    return f"\n{table([column.upper() for column in columns], rows)}{more}"
