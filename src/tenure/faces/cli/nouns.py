"""How each kind of object is shown: the columns of its table, and its name."""

from collections.abc import Mapping
from typing import Any, Final

from tenure.faces.cli.output import Column, Item, Noun, fields, instant, table_with_text
from tenure.faces.cli.progress import MARKS, PENDING, WORD_OF_STATE


def _time(name: str, *, drop_rank: int = 0) -> Column:
    title = name.removesuffix("_at").upper()
    return Column(title, lambda item: instant(item[name]), drop_rank=drop_rank)


def _column(name: str, *, can_shrink: bool = False, drop_rank: int = 0) -> Column:
    def text(item: Item) -> str:
        return "" if item[name] is None else str(item[name])

    return Column(name.upper(), text, can_shrink, drop_rank)


def _labels(agent: Item) -> str:
    labels: Mapping[str, str] = agent["spec"].get("labels", {})
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _target(entry: Item) -> str:
    """The target of an audit entry, by its name if it has one."""
    body = entry["body"] if isinstance(entry["body"], dict) else {}
    return str(body.get("name") or entry["target"])


AGENT: Final = Noun(
    (
        _column("name"),
        _column("state"),
        Column("LABELS", _labels, can_shrink=True),
        _time("created_at", drop_rank=1),
        _column("uid", drop_rank=2),
    ),
    lambda agent: str(agent["name"]),
)
OPERATION: Final = Noun(
    (
        _column("id"),
        _column("kind", drop_rank=1),
        _column("state"),
        Column("AGENT", lambda one: str(one.get("agent_name") or one["agent"]), can_shrink=True),
        _time("created_at", drop_rank=2),
        Column("ERROR", lambda one: str(one["error"]), can_shrink=True),
    ),
    lambda operation: str(operation["id"]),
)
TOKEN: Final = Noun(
    (
        _column("id"),
        _column("principal", can_shrink=True),
        _column("role"),
        _column("tenant", can_shrink=True, drop_rank=1),
        _time("created_at", drop_rank=4),
        _time("expires_at", drop_rank=2),
        _time("revoked_at", drop_rank=3),
        Column("VOID", lambda one: "since a restore" if one.get("void") else "", can_shrink=True),
    ),
    lambda token: str(token["id"]),
)
ENTRY: Final = Noun(
    (
        _column("position"),
        Column("AT", lambda entry: instant(entry["at"])),
        _column("principal", can_shrink=True),
        _column("action"),
        Column("TARGET", _target, can_shrink=True),
        Column("HASH", lambda entry: str(entry["hash"])[:12], drop_rank=1),
    ),
    lambda entry: str(entry["position"]),
)
EVENT: Final = Noun(
    (
        Column("TIME", lambda event: str(event["time"])[:19].replace("T", " ")),
        Column("TYPE", lambda event: str(event["type"]).removeprefix("tenure.")),
        Column("SEQUENCE", lambda event: str(int(event["sequence"])), drop_rank=1),
        Column("AGENT", lambda event: str(event["subject"])),
        _column("operation", drop_rank=2),
        _column("id", drop_rank=3),
    ),
    lambda event: str(event["id"]),
)
SUBSCRIPTION: Final = Noun(
    (
        _column("name"),
        _column("kind"),
        _column("target", can_shrink=True),
        Column("TYPES", lambda one: ",".join(one["types"]) or "all", can_shrink=True),
        Column("REQUIRED", lambda one: "yes" if one["required"] else "", drop_rank=3),
        _column("parked"),
        _column("missed", drop_rank=2),
        _time("failing_since", drop_rank=1),
        _column("id", drop_rank=4),
    ),
    lambda one: str(one["id"]),
)
LETTER: Final = Noun(
    (
        _column("agent"),
        Column("TYPE", lambda one: str(one["event"]["type"]).removeprefix("tenure.")),
        Column("SEQUENCE", lambda one: str(int(one["event"]["sequence"])), drop_rank=2),
        _column("attempts"),
        _time("due_at", drop_rank=1),
        _column("why", can_shrink=True),
    ),
    lambda one: str(one["event"]["id"]),
)
ACKNOWLEDGEMENT: Final = Noun(
    (
        _column("name"),
        _column("operation"),
        _column("agent", drop_rank=1),
        Column("SINCE", lambda one: instant(one["since"]), drop_rank=2),
        _time("acknowledged_at"),
        _column("principal", drop_rank=3),
    ),
    lambda one: str(one["operation"]),
)
RESOURCE: Final = Noun(
    (_column("slot"), _column("state"), _column("step", drop_rank=1), _column("key")),
    lambda resource: str(resource["key"]),
)
QUOTA: Final = Noun(
    (_column("kind"), _column("used"), _column("most")), lambda quota: str(quota["kind"])
)
FINDING: Final = Noun(
    (
        _column("id"),
        _column("kind"),
        _column("reconciler", drop_rank=1),
        _column("sightings", drop_rank=3),
        Column("LAST", lambda one: instant(one["last_seen"]), drop_rank=2),
        Column("WHAT", lambda one: str(one["body"].get("what", "")), can_shrink=True),
    ),
    lambda finding: str(finding["id"]),
)
FINDING_OF_ALL: Final = FINDING._replace(
    columns=(*FINDING.columns[:-1], _time("resolved_at"), FINDING.columns[-1])
)
"""For lists that include resolved findings."""
BRANCH: Final = Noun(
    (_column("depth"), _column("kind"), _column("name"), _column("fate"), _column("owner")),
    lambda branch: str(branch["name"]),
)
RECONCILE_PASS: Final = Noun(
    (
        _column("reconciler"),
        _column("seen"),
        _column("fixed"),
        Column("FINDINGS", lambda one: str(len(one["findings"]) or "")),
        _column("sentence", can_shrink=True),
        _column("error", can_shrink=True),
    ),
    lambda report: str(report["reconciler"]),
)
INVITATION: Final = Noun(
    (_column("client_id"), _time("expires_at")), lambda invitation: str(invitation["client_id"])
)
PLANNED_STEP: Final = Noun(
    (_column("name"), _column("kind"), _column("compensation"), _column("slot")),
    lambda step: str(step["name"]),
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
