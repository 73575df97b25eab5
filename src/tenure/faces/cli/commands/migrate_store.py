"""`tenure migrate-store`: moves an embedded store to PostgreSQL while no plane runs on it."""

import asyncio
from pathlib import Path

import click

from tenure.core.errors import TenureError
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.options import examples, output_option, server_location, server_options
from tenure.faces.cli.output import Column, Noun, say, show_all

NOUN = Noun(
    (
        Column("TABLE", lambda one: str(one["table"])),
        Column("ROWS", lambda one: str(one["rows"])),
        Column("THERE", lambda one: str(one["rows_there"])),
        Column("SAME", lambda one: "yes" if one["same"] else "no"),
    ),
    lambda one: str(one["table"]),
)


@click.command(
    "migrate-store",
    epilog=examples("tenure migrate-store --to postgresql://tenure@db.example/tenure"),
)
@click.option(
    "--to",
    "url",
    required=True,
    metavar="URL",
    envvar="TENURE_STORE",
    help="The PostgreSQL, such as postgresql://user@host/database?schema=tenure.  [TENURE_STORE]",
)
@click.option(
    "--from",
    "source",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The embedded store; by default that of the home.",
)
@output_option
@server_options
@click.pass_context
def command(context: click.Context, *, url: str, source: Path | None, form: str) -> None:
    """Copy an embedded store to PostgreSQL, and compare both.

    Stop the plane first.  If the command is interrupted, run it again: it continues.  When every
    table has the same rows and the same hash on both sides, the file is marked as moved: it can no
    longer be opened, and the error names the new store.  Then start: tenure up --store URL.
    """
    from tenure.wiring import move_store

    path = source or server_location(context).directory() / "tenure.db"
    try:
        compared = asyncio.run(move_store(path, url, report=say))
    except TenureError as error:
        raise CommandExit(Exit.FAILED, str(error)) from None
    except OSError as error:
        raise CommandExit(
            Exit.FAILED,
            f"{error.filename or path}: {error.strerror}",
            advice="the store has not moved; correct this and run the command again: it continues",
        ) from None
    show_all([one._asdict() for one in compared], NOUN, form=form)
