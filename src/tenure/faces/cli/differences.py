"""What stands between files and the agents that are there."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from tenure.faces.cli import files
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import Exit, ServerRefusal

Plain = Mapping[str, Any]
GOING = frozenset({"DELETING", "DELETE_FAILED"})


class Action(StrEnum):
    """What is to be done about one agent."""

    CREATE = "create"
    KEEP = "unchanged"
    DIFFERS = "differs"
    DELETE = "delete"


class Difference(NamedTuple):
    """One agent, and what is to be done about it."""

    name: str
    action: Action
    spec: Plain
    """As the file says; for one to be deleted, as it is."""
    changes: Sequence[str] = ()
    """For one that differs: each field, as it is and as the file says."""
    note: str = ""


def specs_of_files(
    sources: Sequence[str], selector: Mapping[str, str]
) -> tuple[list[Plain], set[str]]:
    """The agents that files name and the selector lets through, and every name in the files."""
    specs: dict[str, Plain] = {}
    origin: dict[str, str] = {}
    for source in sources:
        for document in files.read(source):
            spec = files.check(document.tree, source=document.source)
            name = str(spec["name"])
            if name in specs:
                raise files.file_error(
                    document.source, f"agent {name} is already in {origin[name]}"
                )
            specs[name], origin[name] = spec, document.source
    if not specs:
        raise files.file_error(", ".join(sources), "there is no agent in it")
    return [spec for spec in specs.values() if matches(spec, selector)], set(specs)


def matches(spec: Plain, selector: Mapping[str, str]) -> bool:
    """Whether an agent has all these labels."""
    labels = spec.get("labels", {})
    return all(labels.get(key) == value for key, value in selector.items())


def compare(
    client: Client,
    specs: Iterable[Plain],
    *,
    named: set[str],
    selector: Mapping[str, str],
    prune: bool,
) -> list[Difference]:
    """What is to be done, in an order in which it can be done: owners are made first, gone last."""
    there = {str(agent["name"]): agent for agent in client.pages(path("agents"))}
    found = [_one(spec, there.get(str(spec["name"]))) for spec in specs]
    made = _owners_first(found)
    if not prune:
        return made
    gone = [
        Difference(name, Action.DELETE, agent["spec"])
        for name, agent in there.items()
        if name not in named and matches(agent["spec"], selector) and agent["state"] not in GOING
    ]
    return [*made, *reversed(_owners_first(gone))]


def with_predicted_failures(client: Client, found: Iterable[Difference]) -> Iterator[Difference]:
    """The same; for one to be created also why that would fail, as far as the server can say."""
    for one in found:
        notes = [one.note] if one.note else []
        if one.action is Action.CREATE:
            notes += files.missing_scripts(one.spec)
            try:
                query = {"dry_run": True}
                notes += client.send("POST", path("agents"), body=one.spec, query=query)["warnings"]
            except ServerRefusal as error:
                if error.code is not Exit.AUTHENTICATION:  # who may only look is told less
                    notes.append(error.sentence)
        yield one._replace(note="; ".join(notes))


def _one(spec: Plain, agent: Plain | None) -> Difference:
    name = str(spec["name"])
    if agent is None:
        return Difference(name, Action.CREATE, spec)
    if agent["state"] == "CREATE_FAILED":
        return Difference(name, Action.CREATE, spec, note="its last create was undone")
    if agent["state"] in GOING:
        note = f"it is {agent['state']}; wait for that to end"
        return Difference(name, Action.DIFFERS, spec, note=note)
    changes = list(between(agent["spec"], spec))
    if changes:
        note = "update is not supported yet; delete and create it"
        return Difference(name, Action.DIFFERS, spec, changes, note)
    note = "" if agent["state"] == "READY" else f"it is {agent['state']}"
    return Difference(name, Action.KEEP, spec, note=note)


def between(there: object, here: object, place: str = "") -> Iterator[str]:
    """Each field that differs: `runtime.env.MODE: 'slow' → 'fast'`."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in dict.fromkeys([*there, *here]):
            inner = f"{place}.{key}" if place else str(key)
            yield from between(there.get(key), here.get(key), inner)
    elif there != here:
        shown = ["nothing" if value is None else repr(value) for value in (there, here)]
        yield f"{place}: {shown[0]} → {shown[1]}"


def _owners_first(found: list[Difference]) -> list[Difference]:
    """The same in an order in which no agent stands before its parent."""
    by_name = {one.name: one for one in found}
    order: dict[str, Difference] = {}

    def place(one: Difference, below: tuple[str, ...]) -> None:
        parent = by_name.get(str(one.spec.get("parent") or ""))
        if one.name in below:
            raise files.file_error(one.name, "it is its own parent, by way of others")
        if parent is not None and parent.name not in order:
            place(parent, (*below, one.name))
        order[one.name] = one

    for one in found:
        if one.name not in order:
            place(one, ())
    return list(order.values())


def waves(found: Sequence[Difference]) -> list[list[Difference]]:
    """What can be created at the same time: a parent in an earlier wave than its children."""
    made: list[list[Difference]] = []
    level: dict[str, int] = {}
    for one in found:
        level[one.name] = 1 + level.get(str(one.spec.get("parent") or ""), -1)
        while len(made) <= level[one.name]:
            made.append([])
        made[level[one.name]].append(one)
    return made
