"""`tenure apply`: creates the agents that files describe and that do not exist yet."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click

from tenure.faces.cli import nouns, progress
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.differences import (
    Action,
    Difference,
    compare,
    specs_of_files,
    waves,
    with_predicted_failures,
)
from tenure.faces.cli.exits import OF_STATE, CommandExit, Exit, ServerRefusal
from tenure.faces.cli.options import (
    WaitOptions,
    confirm,
    examples,
    output_option,
    pairs,
    wait_options,
    with_client,
)
from tenure.faces.cli.output import TABLES, as_yaml, escape_control, escape_lines, is_utf8, say

NOT_FOUND = 404
SIGNS = {Action.CREATE: "+", Action.KEEP: "=", Action.DIFFERS: "~", Action.DELETE: "-"}

FILES = click.option(
    "-f",
    "--file",
    "sources",
    multiple=True,
    required=True,
    metavar="FILE|DIR",
    help="A file, a directory of .yaml files, or - for standard input.",
)
SELECTOR = click.option(
    "-l",
    "--selector",
    multiple=True,
    callback=pairs,
    metavar="K=V",
    help="Consider only agents with this label, in the files and on the server.",
)
PRUNE = click.option(
    "--prune",
    is_flag=True,
    help="Delete agents that are in no file; with --selector only agents with that label.",
)


@click.command(
    "apply",
    epilog=examples(
        "tenure apply -f agent.yaml",
        "tenure apply -f agents/ --prune --selector team=ops",
        "tenure apply -f agents/ --dry-run",
    ),
)
@FILES
@SELECTOR
@PRUNE
@click.option("--yes", is_flag=True, help="Prune without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@wait_options
@output_option
@with_client
def command(
    client: Client,
    *,
    sources: tuple[str, ...],
    selector: dict[str, str],
    prune: bool,
    yes: bool,
    dry_run: bool,
    waits: WaitOptions,
    form: str,
) -> None:
    """Create the agents that files describe and that do not exist yet.

    An agent that exists and is equal to its file stays as it is.  An agent that differs is
    reported, and the exit code is 1: an update is not supported yet, so delete and create it.  Only
    specs are compared, not the contents of the files that a command names.
    """
    specs, names_in_files = specs_of_files(sources, selector)
    found = compare(client, specs, names_in_files=names_in_files, selector=selector, prune=prune)
    if dry_run:
        print_differences(list(with_predicted_failures(client, found)), form=form)
        return
    to_delete = [one.name for one in found if one.action is Action.DELETE]
    if to_delete:
        confirm(f"--prune would delete {', '.join(to_delete)}", yes=yes)
    failed = [
        *_create(client, [one for one in found if one.action is Action.CREATE], waits),
        *_delete(client, to_delete, waits),
    ]
    _report(found, failed, form=form)


def _create(client: Client, found: Sequence[Difference], waits: WaitOptions) -> list[str]:
    """Create the agents, owners first; return the names of those that failed."""
    failed: list[str] = []
    for wave in waves(found):
        accepted: list[tuple[str, dict[str, Any]]] = []
        for one in wave:
            if one.spec.get("parent") in failed:
                say(f"agent {one.name}: not created, because its parent was not created")
                failed.append(one.name)
                continue
            try:
                made = client.send("POST", path("agents"), body=one.spec, agent=one.name)
            except ServerRefusal as error:
                _report_refusal(one.name, error)
                failed.append(one.name)
            else:
                accepted.append((one.name, made))
        failed += _await(client, accepted, waits, "created")
    return failed


def _delete(client: Client, names: Sequence[str], waits: WaitOptions) -> list[str]:
    """Delete the agents in this order; an agent may already be deleted with its owner."""
    failed: list[str] = []
    for name in names:
        try:
            made = client.send("DELETE", path("agents", name), agent=name)
        except ServerRefusal as error:
            if error.status != NOT_FOUND:
                _report_refusal(name, error)
                failed.append(name)
        else:
            failed += _await(client, [(name, made)], waits, "deleted")
    return failed


def _await(
    client: Client,
    accepted: Sequence[tuple[str, Mapping[str, Any]]],
    waits: WaitOptions,
    outcome: str,
) -> list[str]:
    """Wait for parallel operations; return the names of agents whose operation failed."""
    if not waits.wait:
        for name, operation in accepted:
            say(f"agent {name}: accepted, operation {operation['id']}")
        return []
    failed: list[str] = []
    started = time.monotonic()
    for name, operation in accepted:
        left = None
        if waits.timeout is not None:
            left = max(0.0, waits.timeout - (time.monotonic() - started))
        progress_state = progress.OperationProgress.of(operation)
        lines: list[progress.ProgressLine] = []
        try:
            seen = progress.follow(
                client,
                operation,
                waits=WaitOptions(timeout=left),
                tell=lines.extend,
                progress_state=progress_state,
            )
        except KeyboardInterrupt:
            raise CommandExit(
                Exit.INTERRUPTED,
                "interrupted; accepted operations continue",
                advice="tenure operation list --open",
            ) from None
        if OF_STATE[str(seen["state"])] is Exit.OK:
            say(f"agent {name} {outcome}")
            continue
        failed.append(name)
        say(f"agent {name} is not {outcome}: {escape_lines(str(seen['error']), indent=2)}")
        for line in lines:
            say(progress.text(line, utf8=is_utf8(sys.stderr)))
        for advice in nouns.advice_on(seen):
            say(f"  {advice}")
    return failed


def _report_refusal(name: str, error: ServerRefusal) -> None:
    if error.code is Exit.AUTHENTICATION:
        raise error
    say(f"agent {name}: {escape_lines(error.sentence, indent=2)}")
    if error.advice:
        say(f"  {escape_control(error.advice)}")


def _report(found: Sequence[Difference], failed: Sequence[str], *, form: str) -> None:
    """Print the counts in one line; CommandExit if an agent failed or differs from its file."""
    count = dict.fromkeys(Action, 0)
    for one in found:
        if one.name not in failed:
            count[one.action] += 1
    differing = [one for one in found if one.action is Action.DIFFERS]
    if form not in TABLES:
        print_differences([one for one in found if one.name not in failed], form=form)
    else:
        print_differences(differing, form=form)
    say(
        f"{count[Action.CREATE]} created, {count[Action.KEEP]} unchanged,"
        f" {count[Action.DELETE]} deleted, {len(differing)} differ, {len(failed)} failed"
    )
    if failed or differing:
        raise CommandExit(Exit.FAILED)


def print_differences(found: Sequence[Difference], *, form: str) -> None:
    """Print the differences."""
    match form:
        case "json":
            print(json.dumps([_plain(one) for one in found], indent=2, ensure_ascii=False))
        case "yaml":
            print(as_yaml([_plain(one) for one in found]), end="")
        case "name":
            for one in found:
                print(one.name)
        case _:
            for one in found:
                note = f": {one.note}" if one.note else ""
                print(f"{SIGNS[one.action]} {one.name} {one.action}{escape_control(note)}")
                for change in one.changes:
                    print(f"    {escape_control(change)}")


def _plain(one: Difference) -> dict[str, object]:
    return {
        "name": one.name,
        "action": str(one.action),
        "changes": list(one.changes),
        "note": one.note,
    }
