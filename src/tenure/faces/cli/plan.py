"""`tenure plan`: what `tenure apply` would do."""

import click

from tenure.faces.cli.apply import FILES, PRUNE, SELECTOR, tell
from tenure.faces.cli.client import Client
from tenure.faces.cli.differences import Action, compare, foreseen, wanted
from tenure.faces.cli.exits import Ended, Exit
from tenure.faces.cli.options import asking, examples, shown
from tenure.faces.cli.output import say


@click.command(
    "plan",
    epilog=examples("tenure plan -f agents/ --prune", "tenure plan -f a.yaml --detailed-exitcode"),
)
@FILES
@SELECTOR
@PRUNE
@click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 3 if anything is not as the files say."
)
@shown
@asking
def command(
    client: Client, *, sources: tuple[str, ...], selector: dict[str, str], prune: bool,
    detailed_exitcode: bool, form: str,
) -> None:  # fmt: skip
    """Show how files and agents differ, and do nothing."""
    specs, named = wanted(sources, selector)
    found = compare(client, specs, named=named, selector=selector, prune=prune)
    tell(list(foreseen(client, found)), form=form)
    changes = [one for one in found if one.action is not Action.KEEP]
    if not changes:
        say("nothing to do: everything is as the files say")
    elif detailed_exitcode:
        raise Ended(Exit.DIFFERS)
