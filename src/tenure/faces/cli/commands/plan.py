"""`tenure plan`: shows what `tenure apply` would change."""

import click

from tenure.faces.cli.client import Client
from tenure.faces.cli.commands.apply import FILES, PRUNE, SELECTOR, print_differences
from tenure.faces.cli.differences import Action, compare, specs_of_files, with_predicted_failures
from tenure.faces.cli.exits import CommandExit, Exit
from tenure.faces.cli.options import examples, output_option, with_client
from tenure.faces.cli.output import say


@click.command(
    "plan",
    epilog=examples("tenure plan -f agents/ --prune", "tenure plan -f a.yaml --detailed-exitcode"),
)
@FILES
@SELECTOR
@PRUNE
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 3 if files and agents differ.")
@output_option
@with_client
def command(
    client: Client,
    *,
    sources: tuple[str, ...],
    selector: dict[str, str],
    prune: bool,
    detailed_exitcode: bool,
    form: str,
) -> None:
    """Show how files and agents differ; change nothing."""
    specs, names_in_files = specs_of_files(sources, selector)
    found = compare(client, specs, names_in_files=names_in_files, selector=selector, prune=prune)
    print_differences(list(with_predicted_failures(client, found)), form=form)
    changes = [one for one in found if one.action is not Action.KEEP]
    if not changes:
        say("nothing to do: agents and files are equal")
    elif detailed_exitcode:
        raise CommandExit(Exit.DIFFERS)
