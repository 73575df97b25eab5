"""`tenure backup`: copies a home to a new directory; a plane may run in it meanwhile.

It reads the home's files itself, so it needs no server and no token, but the right to read them.
"""

import sys
from pathlib import Path

import click

from tenure.core.errors import TenureError
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.options import examples, output_option, server_location, server_options
from tenure.faces.cli.output import Column, Item, Noun, fields, say, show

NOUN = Noun((Column("PLANE", lambda one: str(one["plane"])),), lambda one: str(one["backup"]))


@click.command("backup", epilog=examples("tenure backup /srv/backups/2026-11-17"))
@click.argument("target", metavar="DIRECTORY", type=click.Path(path_type=Path))
@output_option
@server_options
@click.pass_context
def command(context: click.Context, *, target: Path, form: str) -> None:
    """Copy the store and the embedded providers' files to a new DIRECTORY, with a manifest.

    Each copy is consistent in itself, and the directory gets its name only when everything is on
    disk.  Only its owner can read it (0700).  It contains no signing key, sealing key or token: a
    restore makes new ones.  It does not contain the agents' own directories, nor a store on
    PostgreSQL: copy that with PostgreSQL's own tools.
    """
    from tenure.upkeep.backup import back_up
    from tenure.wiring import files_of_a_home, now

    home = server_location(context).directory()
    release = str(sys.modules["tenure"].__version__)
    try:
        manifest = back_up(home, target, files_of_a_home(), release=release, now=now(), report=say)
    except TenureError as error:
        raise CommandExit(Exit.FAILED, str(error)) from None
    item = {"backup": str(target), **manifest._asdict()}
    item["files"] = {name: one._asdict() for name, one in manifest.files.items()}
    show(
        item,
        NOUN,
        form=form,
        text=lambda one: fields(
            [
                ("backup", one["backup"]),
                ("plane", one["plane"]),
                ("epoch", str(one["epoch"])),
                *(
                    [("store, not in it", one["store"])]
                    if one["store"]
                    else [("open operations", str(one["open_operations"]))]
                ),
                ("audit head", f"line {one['audit_position']}, {one['audit_head']}{_as_of(one)}"),
            ]
        ),
    )


def _as_of(item: Item) -> str:
    """A note that the head may be old: for a store on PostgreSQL it is the one in the home."""
    if not item["store"]:
        return ""
    return " (as last noted in the home; tenure audit verify shows the store's current head)"
