"""`tenure export`: prints agents as a file for `tenure apply`."""

import json
from typing import Any

import click

from tenure.faces.cli.client import Client, path
from tenure.faces.cli.differences import DELETE_STATES
from tenure.faces.cli.options import examples, with_client
from tenure.faces.cli.output import as_yaml, say

FORMS = ("yaml", "json", "name")


@click.command(
    "export", epilog=examples("tenure export > agents.yaml", "tenure export hello other -o json")
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-l", "--selector", multiple=True, metavar="K=V", help="Only agents with this label.")
@click.option("-o", "--output", "form", type=click.Choice(FORMS), default="yaml", show_default=True)
@with_client
def command(
    client: Client, *, names: tuple[str, ...], selector: tuple[str, ...], form: str
) -> None:
    """Print agents as a file for `tenure apply`, which would change nothing.

    Without NAME all agents are printed, except those that are being deleted and those whose create
    was undone.
    """
    found: list[dict[str, Any]]
    if names and selector:
        raise click.UsageError("give NAMEs or -l, not both")
    if names:
        found = [client.get(path("agents", name)) for name in names]
    else:
        found = [
            agent
            for agent in client.pages(path("agents"), {"label": list(selector)})
            if agent["state"] not in {"CREATE_FAILED", *DELETE_STATES}
        ]
    specs = [{"name": agent["name"], **agent["spec"]} for agent in found]
    match form:
        case "json":
            print(json.dumps(specs, indent=2, ensure_ascii=False))
        case "name":
            for spec in specs:
                print(spec["name"])
        case _:
            print("---\n".join(map(as_yaml, specs)), end="")
    if not specs:
        say("there is no agent")
