"""Waits for the operation that a command started and shows it, or prints its id."""

import json
import time
from collections.abc import Mapping
from typing import Any

from tenure.faces.cli import nouns, progress
from tenure.faces.cli.client import Client
from tenure.faces.cli.exits import OF_STATE, Exit
from tenure.faces.cli.options import WaitOptions
from tenure.faces.cli.output import as_yaml, say, show


def wait_and_report(
    client: Client,
    operation: Mapping[str, Any],
    *,
    waits: WaitOptions,
    form: str,
    name: str,
    success: str,
) -> None:
    """Wait for the operation and exit with its result; with --no-wait only print its id.

    `name` is what `-o name` prints, `success` the sentence after a success.
    """
    if not waits.wait:
        say(f"accepted; tenure operation watch {operation['id']} follows it")
        show(
            operation,
            nouns.OPERATION,
            form=form,
            text=lambda one: str(one["id"]),
        )
        return
    started = time.monotonic()
    seen = progress.watch(client, operation, waits=waits, title=f"{operation['kind']} {name}")
    print_operation(seen, form=form, name=name)
    progress.report_end(seen, success=success, seconds=time.monotonic() - started)


def print_operation(operation: Mapping[str, Any], *, form: str, name: str) -> None:
    """Print the operation as data, if requested; a name only after a success."""
    match form:
        case "json":
            print(json.dumps(operation, indent=2, ensure_ascii=False))
        case "yaml":
            print(as_yaml(operation), end="")
        case "name":
            if OF_STATE[str(operation["state"])] is Exit.OK:
                print(name)
        case _:
            pass
    for line in nouns.advice_on(operation):
        say(f"  {line}")
