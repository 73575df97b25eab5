"""The cascade of a delete as a tree: `tenure agent delete NAME --dry-run`."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tenure.faces.cli import nouns
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.output import TABLES, Item, escape_control, say, show_all

SHOWN_MAX = 200
"""The maximum of lines of a tree; for the rest only their number is printed."""


def show_cascade(client: Client, name: str, *, form: str) -> None:
    """Print the tree below one agent, with the fate of each entry."""
    planned = client.send("DELETE", path("agents", name), query={"dry_run": True}, agent=name)
    branches: Sequence[Item] = planned["cascade"]
    if form not in TABLES:
        show_all(list(branches), nouns.BRANCH, form=form)
        return
    print(escape_control(f"{name}: delete"))
    lines = list(lines_of(branches))
    for line in lines[:SHOWN_MAX]:
        print(line)
    if len(lines) > SHOWN_MAX:
        print(f"… and {len(lines) - SHOWN_MAX} more")
    counts = Counter(str(one["fate"]).partition(":")[0] for one in branches)
    totals = ", ".join(f"{count} to {fate}" for fate, count in sorted(counts.items()))
    say(f"below {name}: {totals or 'nothing'}")


def agents_below(client: Client, name: str) -> set[str]:
    """The names of the agents that would be deleted with this one."""
    planned = client.send("DELETE", path("agents", name), query={"dry_run": True}, agent=name)
    below: Sequence[Item] = planned["cascade"]
    return {str(one["name"]) for one in below if (one["kind"], one["fate"]) == ("agent", "delete")}


def lines_of(branches: Sequence[Item]) -> Iterator[str]:
    """One line for each entry below the root; a deleted entry is followed by what it owns."""
    below: dict[str, list[Item]] = {}
    for one in branches:
        below.setdefault(str(one["owner"]), []).append(one)
    seen = set[str]()

    def walk(owner: str, indent: str) -> Iterator[str]:
        seen.add(owner)
        rows = below.get(owner, [])
        for number, one in enumerate(rows):
            last = number == len(rows) - 1
            is_shown = str(one["target"]) in seen
            kind = "" if one["kind"] == "agent" else f"{one['kind']} "
            mark = " (above)" if is_shown and one["fate"] == "delete" else ""
            branch = "└─" if last else "├─"
            yield escape_control(f"{indent}{branch} {kind}{one['name']}: {one['fate']}{mark}")
            if not is_shown:
                yield from walk(str(one["target"]), indent + ("   " if last else "│  "))

    if branches:
        yield from walk(str(branches[0]["owner"]), "")
