"""`tenure upgrade --check`: shows what this release would change in a home; changes nothing."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenure.core.errors import TenureError
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.options import examples, output_option, server_location, server_options
from tenure.faces.cli.output import Column, Item, Noun, fields, show

if TYPE_CHECKING:
    from tenure.upkeep.upgrade import SharedStoreReport

NOUN = Noun(
    (Column("POSSIBLE", lambda one: str(one["is_possible"])),),
    lambda one: {True: "possible", False: "refused", None: "unknown"}[one["is_possible"]],
)
BACK = {True: "possible", False: "only with a backup made before", None: "unknown"}


@click.command(
    "upgrade",
    epilog=examples(
        "tenure upgrade --check --home /srv/tenure",
        "tenure upgrade --check --store postgresql://tenure@db/tenure",
    ),
)
@click.option("--check", is_flag=True, required=True, help="Check, and change nothing.")
@click.option(
    "--store", default="", metavar="URL", envvar="TENURE_STORE",
    help="The PostgreSQL store, if the store is not a file in the home.  [TENURE_STORE]",
)  # fmt: skip
@click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 3 if a start would migrate the store."
)
@output_option
@server_options
@click.pass_context
def command(
    context: click.Context, *, check: bool, store: str, detailed_exitcode: bool, form: str
) -> None:
    """Show what this release would change in the home of an older one.

    It lists the migrations that the next start would apply and the steps of open operations that
    this release lacks.  It also says whether you could go back to the earlier release afterwards.
    The exit code is 0 if this release can use the home, and 1 if it cannot or that is unknown.
    """
    del check  # it is required, so that nobody takes this for the upgrade itself
    from tenure.upkeep.upgrade import inspect_home
    from tenure.wiring import files_of_a_home, plans_of_agents

    home = server_location(context).directory()
    try:
        shared_store, why = _shared_store(home, store)
        seen = inspect_home(home, files_of_a_home(), plans_of_agents(), shared_store)
    except TenureError as error:
        raise CommandExit(Exit.FAILED, str(error)) from None
    item = {
        **seen._asdict(),
        "pending": [one._asdict() for one in seen.pending],
        "is_possible": seen.is_possible,
        "can_go_back": seen.can_go_back,
    }
    show(item, NOUN, form=form, text=_text)
    if seen.is_possible is None:
        raise CommandExit(
            Exit.FAILED,
            "it is unknown whether this release can use the home, because its store was not"
            f" read: {why}; nothing was changed",
            advice="" if store else "give --store URL, or TENURE_STORE",
        )
    if not seen.is_possible:
        raise CommandExit(
            Exit.FAILED,
            "this release cannot use the home; nothing was changed",
            advice="let the earlier release finish the open operations" if seen.missing else "",
        )
    if seen.pending and detailed_exitcode:
        raise CommandExit(Exit.DIFFERS)


def _shared_store(home: Path, url: str) -> "tuple[SharedStoreReport | None, str]":
    """The report on a store on PostgreSQL, or why there is none."""
    from tenure.upkeep.homes import store_elsewhere
    from tenure.wiring import inspect_shared_store

    elsewhere = store_elsewhere(home)
    if not elsewhere:
        return None, ""
    if not url:
        return None, f"it is {elsewhere}, and its URL was not given"
    try:
        return asyncio.run(inspect_shared_store(url)), ""
    except TenureError as error:
        return None, str(error).rstrip(".")


def _text(item: Item) -> str:
    pending = [
        ("would migrate", f"{one['file']}: {one['name']}" + (", only adds" * one["only_adds"]))
        for one in item["pending"]
    ]
    return fields([
        *(pending or [("would migrate", "nothing")]),
        ("open operations", "unknown" if item["store"] else str(item["open_operations"])),
        *(("lacks", step) for step in item["missing"]),
        *(("refused", sentence) for sentence in item["refused"]),
        ("going back", BACK[item["can_go_back"]]),
    ])  # fmt: skip
