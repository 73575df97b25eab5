"""Compares the agents in files with the existing agents, for `tenure apply` and `tenure plan`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from tenure.faces.cli import files
from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import Exit, ServerRefusal

Plain = Mapping[str, Any]
DELETE_STATES = frozenset({"DELETING", "DELETE_FAILED"})


class Action(StrEnum):
    """The action for one agent."""

    CREATE = "create"
    KEEP = "unchanged"
    DIFFERS = "differs"
    DELETE = "delete"


class Difference(NamedTuple):
    """One agent, and the action for it."""

    name: str
    action: Action
    spec: Plain
    """The spec in the file; for an agent to delete, its current spec."""
    changes: Sequence[str] = ()
    """For an agent that differs: each field with its current and its new value."""
    note: str = ""


def specs_of_files(
    sources: Sequence[str], selector: Mapping[str, str]
) -> tuple[list[Plain], set[str]]:
    """The specs in files that match the selector, and all names in the files."""
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
        raise files.file_error(", ".join(sources), "it contains no agent")
    return [spec for spec in specs.values() if matches(spec, selector)], set(specs)


def matches(spec: Plain, selector: Mapping[str, str]) -> bool:
    """Whether an agent has all these labels."""
    labels = spec.get("labels", {})
    return all(labels.get(key) == value for key, value in selector.items())


def compare(
    client: Client,
    specs: Iterable[Plain],
    *,
    names_in_files: set[str],
    selector: Mapping[str, str],
    prune: bool,
) -> list[Difference]:
    """The differences in an order that works: owners are created first and deleted last."""
    current = {str(agent["name"]): agent for agent in client.pages(path("agents"))}
    found = [_difference(spec, current.get(str(spec["name"]))) for spec in specs]
    ordered = _owners_first(found)
    if not prune:
        return ordered
    to_delete = [
        Difference(name, Action.DELETE, agent["spec"])
        for name, agent in current.items()
        if name not in names_in_files
        and matches(agent["spec"], selector)
        and agent["state"] not in DELETE_STATES
    ]
    return [*ordered, *reversed(_owners_first(to_delete))]


def with_predicted_failures(client: Client, found: Iterable[Difference]) -> Iterator[Difference]:
    """The same, with the reasons why a create would fail, as far as the server can tell."""
    for one in found:
        notes = [one.note] if one.note else []
        if one.action is Action.CREATE:
            notes += files.missing_scripts(one.spec)
            try:
                query = {"dry_run": True}
                notes += client.send("POST", path("agents"), body=one.spec, query=query)["warnings"]
            except ServerRefusal as error:
                if error.code is not Exit.AUTHENTICATION:  # a viewer gets no predictions
                    notes.append(error.sentence)
        yield one._replace(note="; ".join(notes))


def _difference(spec: Plain, agent: Plain | None) -> Difference:
    name = str(spec["name"])
    if agent is None:
        return Difference(name, Action.CREATE, spec)
    if agent["state"] == "CREATE_FAILED":
        return Difference(name, Action.CREATE, spec, note="its last create was undone")
    if agent["state"] in DELETE_STATES:
        note = f"it is {agent['state']}; wait for that to end"
        return Difference(name, Action.DIFFERS, spec, note=note)
    changes = list(field_changes(agent["spec"], spec))
    if changes:
        note = "update is not supported yet; delete and create it"
        return Difference(name, Action.DIFFERS, spec, changes, note)
    note = "" if agent["state"] == "READY" else f"it is {agent['state']}"
    return Difference(name, Action.KEEP, spec, note=note)


def field_changes(current: object, desired: object, field: str = "") -> Iterator[str]:
    """Each field that differs: `runtime.env.MODE: 'slow' → 'fast'`."""
    if isinstance(current, dict) and isinstance(desired, dict):
        for key in dict.fromkeys([*current, *desired]):
            inner = f"{field}.{key}" if field else str(key)
            yield from field_changes(current.get(key), desired.get(key), inner)
    elif current != desired:
        shown = ["nothing" if value is None else repr(value) for value in (current, desired)]
        yield f"{field}: {shown[0]} → {shown[1]}"


def _owners_first(found: list[Difference]) -> list[Difference]:
    """The same in an order in which each parent comes before its children."""
    by_name = {one.name: one for one in found}
    order: dict[str, Difference] = {}

    def place(one: Difference, below: tuple[str, ...]) -> None:
        parent = by_name.get(str(one.spec.get("parent") or ""))
        if one.name in below:
            raise files.file_error(one.name, "the parents form a cycle")
        if parent is not None and parent.name not in order:
            place(parent, (*below, one.name))
        order[one.name] = one

    for one in found:
        if one.name not in order:
            place(one, ())
    return list(order.values())


def waves(found: Sequence[Difference]) -> list[list[Difference]]:
    """Groups of agents that can be created in parallel; a parent is in an earlier group."""
    ordered: list[list[Difference]] = []
    level: dict[str, int] = {}
    for one in found:
        level[one.name] = 1 + level.get(str(one.spec.get("parent") or ""), -1)
        while len(ordered) <= level[one.name]:
            ordered.append([])
        ordered[level[one.name]].append(one)
    return ordered
