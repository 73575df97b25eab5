"""`tenure upgrade --check`: what this release would do to a home; nothing is changed."""

import click

from tenure.core.errors import TenureError
from tenure.faces.cli.exits import Ended, Exit
from tenure.faces.cli.options import examples, placed, said, shown
from tenure.faces.cli.output import Column, Item, Noun, fields, show

NOUN = Noun(
    (Column("POSSIBLE", lambda one: str(one["is_possible"])),),
    lambda one: "possible" if one["is_possible"] else "refused",
)


@click.command("upgrade", epilog=examples("tenure upgrade --check --home /srv/tenure"))
@click.option("--check", is_flag=True, required=True, help="Look, and change nothing.")
@click.option(
    "--detailed-exitcode", is_flag=True, help="Exit 3 if a start would migrate something."
)
@shown
@placed
@click.pass_context
def command(context: click.Context, *, check: bool, detailed_exitcode: bool, form: str) -> None:
    """Say what this release would do to the home of an older one, before it is started there.

    It lists the migrations that the next start would apply, the steps of open operations that this
    release lacks, and whether the release before could take the home back afterwards.  Exit 0: this
    release can take it over; 1: it cannot.
    """
    del check  # it is required, so that nobody takes this for the upgrade itself
    from tenure.upkeep.upgrade import look
    from tenure.wiring import files_of_a_home, plans_of_agents

    try:
        seen = look(said(context).directory(), files_of_a_home(), plans_of_agents())
    except TenureError as error:
        raise Ended(Exit.FAILED, str(error)) from None
    item = {
        **seen._asdict(),
        "pending": [one._asdict() for one in seen.pending],
        "is_possible": seen.is_possible,
        "can_go_back": seen.can_go_back,
    }
    show(item, NOUN, form=form, text=_text)
    if not seen.is_possible:
        raise Ended(
            Exit.FAILED,
            "this release cannot take the home over; nothing was changed",
            advice="let the release before end what is open" if seen.missing else "",
        )
    if seen.pending and detailed_exitcode:
        raise Ended(Exit.DIFFERS)


def _text(item: Item) -> str:
    pending = [
        ("would migrate", f"{one['file']}: {one['name']}" + (", only adds" * one["only_adds"]))
        for one in item["pending"]
    ]
    return fields([
        *(pending or [("would migrate", "nothing")]),
        ("open operations", "not looked at" if item["store"] else str(item["open_operations"])),
        *([("store", f"{item['store']}: tenure doctor --store URL looks at it")] if item["store"]
          else []),
        *(("lacks", step) for step in item["missing"]),
        *(("refused", sentence) for sentence in item["refused"]),
        ("going back", "possible" if item["can_go_back"] else "only by a backup made before"),
    ])  # fmt: skip
