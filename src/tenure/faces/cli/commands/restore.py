"""`tenure restore`: puts a backup into a home while no plane runs there, and later ends the pause.

The restore itself works on files; `--review` and `--confirm` send requests to the started plane.
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

SHOWN_MAX = 20
"""Lines of each kind that `--confirm` shows; `tenure restore --review` prints the rest."""
EPOCH = Noun((Column("EPOCH", lambda one: str(one["epoch"])),), lambda one: str(one["epoch"]))


@click.command(
    "restore",
    epilog=examples(
        "tenure restore /srv/backups/2026-11-17", "tenure up", "tenure restore --confirm"
    ),
)
@click.argument("source", metavar="[DIRECTORY]", required=False, type=click.Path(path_type=Path))
@click.option("--review", is_flag=True, help="Show what confirming would change.")
@click.option(
    "--confirm", "confirm_restore", is_flag=True, help="Show the review and end the pause."
)
@click.option(
    "--hold",
    "hold_plane",
    is_flag=True,
    help="Pause a plane whose store was restored by other means.",
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
    confirm_restore: bool,
    hold_plane: bool,
    yes: bool,
    form: str,
) -> None:
    """Put the backup in DIRECTORY into the home, whose plane must be stopped.

    The backup is verified first.  A new epoch begins: every token that was issued before is void,
    and the next `tenure up` makes a new one for the admin.  Providers' files that exist and are
    intact are not replaced, so that nothing that was revoked or deleted after the backup comes
    back, and agents that were deleted or suspended after it are not started again.  Replaced files
    are moved aside.  In an empty home the providers' files are restored too: everything is as it
    was at the backup, and agents that were READY then are started again after the confirmation,
    unless the plane runs with `--drift report`.

    The plane then starts paused: it answers reads, no operation continues, and nothing is deleted
    at any provider. `tenure restore --confirm` shows the effects and ends the pause.
    """
    if sum((source is not None, review, confirm_restore, hold_plane)) != 1:
        raise CommandExit(
            Exit.USAGE,
            "give exactly one of: a directory, --review, --confirm, --hold",
            advice="see tenure restore --help",
        )
    if review or confirm_restore:
        client = Client(server_location(context))
        try:
            _confirm(client, yes=yes, form=form) if confirm_restore else _review(client, form=form)
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
            advice="the plane does not start before a restore is complete: run the command again",
        ) from None


def _restore(source: Path, home: Path, *, yes: bool, form: str) -> None:
    from tenure.upkeep.backup import MANIFEST
    from tenure.upkeep.homes import STORE
    from tenure.upkeep.restore import restore
    from tenure.wiring import files_of_a_home

    if (home / STORE).exists() and (source / MANIFEST).exists():  # else `restore` refuses
        confirm(f"the store in {home} will be moved aside and replaced", yes=yes)
    result = restore(source.absolute(), home, files_of_a_home(), report=say)
    if any(result.aside.iterdir()):
        say(f"the replaced files are in {result.aside}")
    start = f"tenure up --home {home}"
    if result.store:
        say(
            f"the store was not in this backup and is unchanged: {result.store}. If you want its"
            " records of the backup too, restore the dump that was made with it (pg_restore) before"
            " you start anything"
        )
        start += " --store URL, before any worker"
    say(f"next: {start}, then tenure restore --confirm --home {home}")
    item = {**result._asdict(), "aside": str(result.aside)}
    what = "the home is restored, its store is not" if result.store else "restored"
    show(item, EPOCH, form=form, text=lambda one: f"{what}; epoch {one['epoch']}")


def _hold(home: Path, *, yes: bool, form: str) -> None:
    from tenure.upkeep.restore import hold
    from tenure.wiring import files_of_a_home

    confirm(f"every token of {home} will be void, and the plane paused", yes=yes)
    item = {"epoch": hold(home, files_of_a_home())}
    show(item, EPOCH, form=form, text=lambda one: f"paused; epoch {one['epoch']}")


def _review(client: Client, *, form: str) -> None:
    show(
        _get_review(client),
        EPOCH,
        form=form,
        text=lambda review: describe_review(review, most=1_000),
    )


def _confirm(client: Client, *, yes: bool, form: str) -> None:
    """Show what ending the pause would change, and end it."""
    review = _get_review(client)
    say(describe_review(review, most=SHOWN_MAX))
    if not review["held"]:
        raise CommandExit(Exit.FAILED, "the plane is not paused: there is nothing to confirm")
    confirm("operations will continue", yes=yes)
    status = client.send(
        "POST", path("plane", verb="confirm"), check_command="tenure restore --review"
    )
    show(status, EPOCH, form=form, text=lambda one: f"the pause has ended; epoch {one['epoch']}")


def _get_review(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get(path("plane", "review"), seconds=120.0)
    return found


def describe_review(review: Item, *, most: int) -> str:
    """A review as text, with at most so many lines of each kind."""
    parts = [
        f"epoch {review['epoch']}; paused: {review['held'] or 'no'}",
        f"{review['open_operations']} open operations will be resumed"
        + _lines(review["resumed"], ("operation", "kind", "state", "agent"), most),
        f"{review['missing_resources']} resources are in the store and missing at their providers;"
        " deleted resources are not\ncreated again. An agent that lacks more than its runtime was"
        " probably deleted after the backup:\ntenure agent delete NAME"
        + _lines(review["missing"], ("name", "slot", "key", "agent"), most),
        f"{review['started_agents']} agents lack only a running runtime and will be started again"
        " (unless the plane\nruns with --drift report)"
        + _lines(review["started"], ("name", "tenant", "agent"), most),
        f"{review['shut_agents']} agents are READY in the store and closed at their provider: they"
        " were probably suspended after\nthe backup. They are not started again: tenure agent"
        " suspend NAME, then tenure agent resume NAME\nif you want them to run"
        + _lines(review["shut"], ("name", "tenant", "agent"), most),
        f"{review['untold_agents']} agents are READY in the store, and it is unknown whether they"
        " were suspended or will be\nstarted again: a provider does not answer, or other resources"
        " differ from the records" + _lines(review["untold"], ("name", "tenant", "agent"), most),
        f"{review['unknown_resources']} resources are at providers and unknown to the store; the"
        " plane never deletes\nthem. After the confirmation they are findings:"
        " tenure finding remove ID" + _lines(review["unknown"], ("slot", "key", "agent"), most),
        *(f"not checked: {sentence}" for sentence in review["silent"]),
    ]
    return "\n\n".join(parts)


def _lines(items: list[dict[str, Any]], columns: tuple[str, ...], most: int) -> str:
    if not items:
        return ""
    rows = [[str(one[column]) for column in columns] for one in items[:most]]
    more = "\n… tenure restore --review shows more" if len(items) > most else ""
    return f"\n{table([column.upper() for column in columns], rows)}{more}"
