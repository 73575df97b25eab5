"""How each kind of object is shown: the columns of its table, and its name."""

from collections.abc import Mapping
from typing import Any, Final

from tenure.faces.cli.output import Column, Item, Noun, fields, instant, table_with_text
from tenure.faces.cli.progress import MARKS, PENDING, WORD_OF_STATE


def _at(name: str, *, spare: int = 0) -> Column:
    title = name.removesuffix("_at").upper()
    return Column(title, lambda item: instant(item[name]), spare=spare)


def _is(name: str, *, free: bool = False, spare: int = 0) -> Column:
    def text(item: Item) -> str:
        return "" if item[name] is None else str(item[name])

    return Column(name.upper(), text, free, spare)


def _labels(agent: Item) -> str:
    labels: Mapping[str, str] = agent["spec"].get("labels", {})
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _target(entry: Item) -> str:
    """The target of an audit entry, by its name if it has one."""
    body = entry["body"] if isinstance(entry["body"], dict) else {}
    return str(body.get("name") or entry["target"])


AGENT: Final = Noun(
    (
        _is("name"),
        _is("state"),
        Column("LABELS", _labels, free=True),
        _at("created_at", spare=1),
        _is("uid", spare=2),
    ),
    lambda agent: str(agent["name"]),
)
OPERATION: Final = Noun(
    (
        _is("id"),
        _is("kind", spare=1),
        _is("state"),
        Column("AGENT", lambda one: str(one.get("agent_name") or one["agent"]), free=True),
        _at("created_at", spare=2),
        Column("ERROR", lambda one: str(one["error"]), free=True),
    ),
    lambda operation: str(operation["id"]),
)
TOKEN: Final = Noun(
    (
        _is("id"),
        _is("principal", free=True),
        _is("role"),
        _is("tenant", free=True, spare=1),
        _at("created_at", spare=4),
        _at("expires_at", spare=2),
        _at("revoked_at", spare=3),
        Column("VOID", lambda one: "since a restore" if one.get("void") else "", free=True),
    ),
    lambda token: str(token["id"]),
)
ENTRY: Final = Noun(
    (
        _is("position"),
        Column("AT", lambda entry: instant(entry["at"])),
        _is("principal", free=True),
        _is("action"),
        Column("TARGET", _target, free=True),
        Column("HASH", lambda entry: str(entry["hash"])[:12], spare=1),
    ),
    lambda entry: str(entry["position"]),
)
EVENT: Final = Noun(
    (
        Column("TIME", lambda event: str(event["time"])[:19].replace("T", " ")),
        Column("TYPE", lambda event: str(event["type"]).removeprefix("tenure.")),
        Column("SEQUENCE", lambda event: str(int(event["sequence"])), spare=1),
        Column("AGENT", lambda event: str(event["subject"])),
        _is("operation", spare=2),
        _is("id", spare=3),
    ),
    lambda event: str(event["id"]),
)
SUBSCRIPTION: Final = Noun(
    (
        _is("name"),
        _is("kind"),
        _is("target", free=True),
        Column("TYPES", lambda one: ",".join(one["types"]) or "all", free=True),
        Column("REQUIRED", lambda one: "yes" if one["required"] else "", spare=3),
        _is("parked"),
        _is("missed", spare=2),
        _at("failing_since", spare=1),
        _is("id", spare=4),
    ),
    lambda one: str(one["id"]),
)
LETTER: Final = Noun(
    (
        _is("agent"),
        Column("TYPE", lambda one: str(one["event"]["type"]).removeprefix("tenure.")),
        Column("SEQUENCE", lambda one: str(int(one["event"]["sequence"])), spare=2),
        _is("attempts"),
        _at("due_at", spare=1),
        _is("why", free=True),
    ),
    lambda one: str(one["event"]["id"]),
)
ACKNOWLEDGEMENT: Final = Noun(
    (
        _is("name"),
        _is("operation"),
        _is("agent", spare=1),
        Column("SINCE", lambda one: instant(one["since"]), spare=2),
        _at("acknowledged_at"),
        _is("principal", spare=3),
    ),
    lambda one: str(one["operation"]),
)
RESOURCE: Final = Noun(
    (_is("slot"), _is("state"), _is("step", spare=1), _is("key")),
    lambda resource: str(resource["key"]),
)
QUOTA: Final = Noun((_is("kind"), _is("used"), _is("most")), lambda quota: str(quota["kind"]))
FINDING: Final = Noun(
    (
        _is("id"),
        _is("kind"),
        _is("reconciler", spare=1),
        _is("sightings", spare=3),
        Column("LAST", lambda one: instant(one["last_seen"]), spare=2),
        Column("WHAT", lambda one: str(one["body"].get("what", "")), free=True),
    ),
    lambda finding: str(finding["id"]),
)
FINDING_OF_ALL: Final = FINDING._replace(
    columns=(*FINDING.columns[:-1], _at("resolved_at"), FINDING.columns[-1])
)
"""For lists that include resolved findings."""
BRANCH: Final = Noun(
    (_is("depth"), _is("kind"), _is("name"), _is("fate"), _is("owner")),
    lambda branch: str(branch["name"]),
)
RECONCILE_PASS: Final = Noun(
    (
        _is("reconciler"),
        _is("seen"),
        _is("fixed"),
        Column("FINDINGS", lambda one: str(len(one["findings"]) or "")),
        _is("sentence", free=True),
        _is("error", free=True),
    ),
    lambda report: str(report["reconciler"]),
)
INVITATION: Final = Noun(
    (_is("client_id"), _at("expires_at")), lambda invitation: str(invitation["client_id"])
)
PLANNED_STEP: Final = Noun(
    (_is("name"), _is("kind"), _is("compensation"), _is("slot")), lambda step: str(step["name"])
)


def agent_text(agent: Item, *, parent: str = "", failed_operation: Item | None = None) -> str:
    """One agent as text, with its parent's name and with the operation by which it failed."""
    runtime: Mapping[str, Any] = agent["spec"].get("runtime", {})
    return fields(
        [
            ("name", str(agent["name"])),
            ("state", str(agent["state"])),
            ("uid", str(agent["uid"])),
            ("owner", str(agent["spec"].get("owner", ""))),
            ("labels", _labels(agent)),
            ("roles", ", ".join(agent["spec"].get("roles", ()))),
            ("command", " ".join(runtime.get("command", ()))),
            ("zone", str(runtime.get("zone") or "")),
            ("parent", parent),
            ("operation", str(agent["operation"])),
            ("failed", _failure(failed_operation)),
            ("created", instant(agent["created_at"])),
            ("updated", instant(agent["updated_at"])),
            ("etag", str(agent["etag"])),
        ]
    )


def _failure(operation: Item | None) -> str:
    return f"{operation['error']} (operation {operation['id']})" if operation else ""


def operation_text(operation: Item) -> str:
    """One operation with its steps."""
    head = fields(
        [
            ("id", str(operation["id"])),
            ("kind", str(operation["kind"])),
            ("agent", " ".join(filter(None, (operation.get("agent_name"), operation["agent"])))),
            ("state", str(operation["state"])),
            ("error", str(operation["error"])),
            ("created", instant(operation["created_at"])),
            ("updated", instant(operation["updated_at"])),
        ]
    )
    rows = [
        [_mark(step, operation), step["name"], _fate(step, operation), step["detail"]]
        for step in operation["steps"]
    ]
    return f"{head}\n\n{table_with_text(['', 'STEP', 'STATE', 'DETAIL'], rows)}"


def _fate(step: Item, operation: Item) -> str:
    if step["stuck"]:
        return "stuck"
    fate = WORD_OF_STATE.get(str(step["state"] or ""), "not begun")
    if fate == "running" and operation["state"] == PENDING:
        return "waits for a worker"
    return "not done" if fate == "running" and operation["done"] else fate


def _mark(step: Item, operation: Item) -> str:
    fate = _fate(step, operation)
    return MARKS[fate if fate in MARKS else ""].sign


def advice_on(operation: Item) -> list[str]:
    """The commands for an operation that is stuck or waits for a subscriber."""
    name = operation["id"]
    if operation["state"] == "WAITING" and operation["steps"][-1]["name"] == "acknowledged":
        one = f"tenure subscription acknowledge SUBSCRIBER {name}"
        return [f"{one}   once it has done its part", f"{one} --override WHY   in its place"]
    if operation["state"] != "STUCK":
        return []
    lines = [f"tenure operation retry {name}"]
    for step in operation["steps"]:
        if step["stuck"]:
            one = f"{name} {step['name']}"
            lines += [
                f"tenure operation mark-absent {one}   if it holds nothing",
                f"tenure operation adopt {one}   if it did happen",
            ]
    return [*lines, f"tenure operation abandon {name}   leaves everything as it is"]
