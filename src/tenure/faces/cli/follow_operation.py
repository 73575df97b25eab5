"""What every command does with the operation that it started: wait and show it, or name it."""

import json
import time
from collections.abc import Mapping
from typing import Any

from tenure.faces.cli import nouns, progress
from tenure.faces.cli.client import Client
from tenure.faces.cli.exits import OF_STATE, Exit
from tenure.faces.cli.options import Waits
from tenure.faces.cli.output import as_yaml, say, show


def attend(
    client: Client, operation: Mapping[str, Any], *, waits: Waits, form: str, name: str, done: str
) -> None:
    """Wait for the operation and end as it ends; or, if nobody waits, print where to look.

    `name` is what `-o name` prints, `done` the sentence once it has succeeded.
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
    progress.report_end(seen, what=done, seconds=time.monotonic() - started)


def print_operation(operation: Mapping[str, Any], *, form: str, name: str) -> None:
    """Print the operation, if data was asked for; a name only if all is well."""
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
