"""Shows the progress of an operation while a command waits for it.

The progress comes from the operation's records, which the server streams, or from polling if the
stream does not work.  Both update the same `OperationProgress`, so that no line is shown twice.  If
the server goes away, the command waits for it: an accepted operation continues when it is back.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tenure.faces.cli.client import Client, path, retry_until
from tenure.faces.cli.exits import OF_STATE, CommandExit, Exit, ServerRefusal, Unreachable
from tenure.faces.cli.options import WaitOptions
from tenure.faces.cli.output import escape_control, is_utf8, say

SETTLED_STATES: Final = frozenset(OF_STATE)
PENDING: Final = "PENDING"
"""Accepted and not claimed yet: no step runs."""
SILENCE_SECONDS = 15.0
"""The server sends a heartbeat every five seconds; after so long the connection is dead."""
AWAY_SECONDS = 60.0
"""How long the command waits for a server that went away."""
POLL_SECONDS = 1.0
Plain = Mapping[str, Any]


class Mark(NamedTuple):
    """How one fate of a step is shown, with and without UTF-8."""

    sign: str
    ascii: str
    colour: str


MARKS: Final = {
    "": Mark(" ", " ", "bright_black"),
    "running": Mark("…", ".", "cyan"),
    "done": Mark("✓", "+", "green"),
    "refused": Mark("✗", "x", "red"),
    "undoing": Mark("…", ".", "yellow"),
    "undone": Mark("↺", "<", "yellow"),
    "stuck": Mark("!", "!", "red"),
}
WORD_OF_STATE: Final = {
    "INTENDED": "running",
    "PRESENT": "done",
    "REFUSED": "refused",
    "REMOVING": "undoing",
    "BURNED": "undone",
}
PRINTED_FATES: Final = frozenset({"done", "refused", "undone", "stuck"})
"""Fates that get a line of their own if standard error is no terminal."""


class ProgressLine(NamedTuple):
    """One event to show; `step` is empty if it concerns the whole operation."""

    step: str
    fate: str
    detail: str = ""


@dataclass(slots=True)
class OperationProgress:
    """The known state of every step."""

    kind: str
    state: str
    fates: dict[str, str]
    details: dict[str, str] = field(default_factory=dict)
    last: int = 0
    """The number of the last record that was received."""
    undoing: bool = False
    """Whether the operation is being undone."""
    wait_reason: str = ""
    """Why no worker has started it, if that is known."""

    @classmethod
    def of(cls, operation: Plain) -> "OperationProgress":
        """The progress of an operation of which no record was received yet."""
        return cls(
            str(operation["kind"]),
            str(operation["state"]),
            {str(step["name"]): "" for step in operation["steps"]},
        )

    def apply_record(self, record: Plain) -> list[ProgressLine]:
        """Apply a record of the journal; return the lines to show."""
        if int(record["seq"]) <= self.last:
            return []
        self.last, self.state = int(record["seq"]), str(record["state"])
        step, body = str(record["step"]), record.get("body")
        why = str(body.get("why") or "") if isinstance(body, dict) else ""
        match record["kind"]:
            case "done" | "adopted":
                return self._set_fate(step, "done")
            case "refused":
                return [*self._set_fate(step, "refused", why), *self._start_undo("")]
            case "compensating":
                return self._start_undo(why)
            case "undone":
                return self._set_fate(step, "undone")
            case "marked_absent":  # on the way forward it is done again
                return self._set_fate(step, "undone" if self.undoing else "running")
            case "stuck":
                return self._set_fate(step, "stuck", why)
            case "abandoned":
                return [ProgressLine("", "stuck", "abandoned as it is")]
            case "retried":
                self._clear_stuck()
                return []
            case _:
                return []

    def apply_operation(self, operation: Plain) -> list[ProgressLine]:
        """Apply the operation's own state, which also has running steps and reasons."""
        self.state = str(operation["state"])
        lines: list[ProgressLine] = []
        if self.state in {"COMPENSATING", "COMPENSATED"}:
            lines += self._start_undo(str(operation["error"]))
        for step in operation["steps"]:
            name, detail = str(step["name"]), str(step["detail"])
            fate = "stuck" if step["stuck"] else WORD_OF_STATE.get(str(step["state"] or ""), "")
            fate = "" if fate == "running" and self.state == PENDING else fate
            lines += self._set_fate(name, fate, detail)
        return lines

    def _set_fate(self, step: str, fate: str, detail: str = "") -> list[ProgressLine]:
        previous = self.fates.get(step, "")
        if fate == "refused" and previous in {"undoing", "undone"}:
            return []
        self.fates[step] = fate
        is_new = fate != previous and fate in PRINTED_FATES
        is_new |= fate == "running" and detail not in {"", self.details.get(step, "")}
        if detail or fate != previous:  # the reason of a failure stays, though it is not repeated
            self.details[step] = detail
        return [ProgressLine(step, fate, detail)] if is_new else []

    def _start_undo(self, why: str) -> list[ProgressLine]:
        if self.undoing:
            return []
        self.undoing = True
        return [ProgressLine("", "undoing", why)]

    def wait(self, why: str) -> list[ProgressLine]:
        """Note why no worker has started the operation; empty: one has."""
        previous, self.wait_reason = self.wait_reason, why
        return [ProgressLine("", "running", why)] if why and why != previous else []

    def _clear_stuck(self) -> None:
        for step, fate in self.fates.items():
            if fate == "stuck":
                self.fates[step] = "undoing" if self.undoing else "running"

    def running(self) -> str:
        """The step that runs now, guessed from the order of the plan."""
        if self.state in SETTLED_STATES or self.state == PENDING or self.undoing:
            return ""
        return next((name for name, fate in self.fates.items() if fate in {"", "running"}), "")


# ------------------------------------------------------------------------------------------ waiting


def follow(
    client: Client,
    operation: Plain,
    *,
    waits: WaitOptions,
    tell: Callable[[list[ProgressLine]], None],
    progress_state: OperationProgress,
) -> dict[str, Any]:
    """The operation once it is settled; CommandExit with TIMED_OUT if that takes too long."""
    name = str(operation["id"])
    until = None if waits.timeout is None else time.monotonic() + waits.timeout
    streams = True
    while True:
        if streams:
            streams = _stream(client, name, progress_state, tell, until)
        left = _seconds_left(until)
        seconds = POLL_SECONDS if left is None else max(0.0, min(POLL_SECONDS, left))
        if streams or progress_state.state in SETTLED_STATES:
            seconds = 0.0
        seen = _poll(client, name, seconds, until)
        tell(progress_state.apply_operation(seen))
        if seen["state"] in SETTLED_STATES:
            return seen
        if left is not None and left <= 0:
            state = f"{seen['kind']} is {seen['state']} after {waits.timeout:g} s and goes on"
            why = f": {_why_unclaimed(client)}" if seen["state"] == PENDING else _why(seen)
            raise CommandExit(Exit.TIMED_OUT, state + why, advice=f"tenure operation watch {name}")


def _why(operation: Plain) -> str:
    """The reason why a step waits, if it has one."""
    details = (str(step["detail"]) for step in operation["steps"] if step["state"] == "INTENDED")
    first = next((detail.splitlines()[0] for detail in details if detail), "")
    return f": {first}" if first else ""


def _why_unclaimed(client: Client) -> str:
    """Why no worker has started it, as far as the server knows."""
    with suppress(CommandExit):
        if away := client.get("/readyz").get("engine"):
            return f"{away}; it goes on when that is back"
    return "it waits for a worker"


def _poll(client: Client, name: str, seconds: float, until: float | None) -> dict[str, Any]:
    away = time.monotonic() + AWAY_SECONDS
    seen: dict[str, Any] = retry_until(
        lambda: client.get(
            path("operations", name, "wait"), {"seconds": f"{seconds:.3f}"}, seconds=seconds
        ),
        until=away if until is None else min(away, until),
    )
    return seen


def _stream(
    client: Client,
    name: str,
    progress_state: OperationProgress,
    tell: Callable[[list[ProgressLine]], None],
    until: float | None,
) -> bool:
    """Read records until the operation is settled, time is up or the connection breaks.

    Returns whether streaming works at all: a proxy may not let it through.
    """
    left = _seconds_left(until)
    silence = SILENCE_SECONDS if left is None else min(SILENCE_SECONDS, max(left, 0.05))
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(progress_state.last)}
    try:
        with client.stream(
            "GET", path("operations", name, "events"), headers=headers, seconds=silence
        ) as answer:
            if answer.status != 200:  # noqa: PLR2004 (the only success of this route)
                raise client.refusal(answer)
            if "text/event-stream" not in (answer.getheader("Content-Type") or ""):
                return False
            for event, data in events(client.lines(answer)):
                if event == "settled":
                    return True
                if event:
                    tell(progress_state.apply_record(json.loads(data)))
                else:  # a heartbeat: read why the operation takes so long
                    tell(progress_state.apply_operation(client.get(path("operations", name))))
                    tell(
                        progress_state.wait(
                            "" if progress_state.state != PENDING else _why_unclaimed(client)
                        )
                    )
                left = _seconds_left(until)
                if left is not None and left <= 0:
                    return True
    except ServerRefusal as error:
        if error.code is Exit.AUTHENTICATION or error.status == 404:  # noqa: PLR2004 (not found)
            raise
        return False
    except (Unreachable, ValueError):
        pass  # the server went away, or time is up: the next poll finds out
    return True


def events(lines: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    """Server-sent events as (name, data); a comment, which is a heartbeat, has neither."""
    event = ""
    data: list[str] = []
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if line.startswith(":"):
            yield "", ""
        elif not line:
            if event:
                yield event, "\n".join(data)
            event, data = "", []
        else:
            name, _, value = line.partition(":")
            if name == "event":
                event = value.strip()
            elif name == "data":
                data.append(value.removeprefix(" "))


def _seconds_left(until: float | None) -> float | None:
    return None if until is None else until - time.monotonic()


# ------------------------------------------------------------------------------------------ drawing


def watch(
    client: Client, operation: Plain, *, waits: WaitOptions, title: str = ""
) -> dict[str, Any]:
    """Show the operation until it is settled; return it then."""
    progress_state = OperationProgress.of(operation)
    started_at = time.monotonic()
    try:
        with _display(progress_state, title or progress_state.kind, started_at) as tell:
            return follow(client, operation, waits=waits, tell=tell, progress_state=progress_state)
    except KeyboardInterrupt:
        raise CommandExit(
            Exit.INTERRUPTED,
            "interrupted; the operation goes on",
            advice=f"tenure operation watch {operation['id']}",
        ) from None


@contextmanager
def _display(
    progress_state: OperationProgress, title: str, started_at: float
) -> Iterator[Callable[[list[ProgressLine]], None]]:
    if not sys.stderr.isatty():
        yield _print_lines
        return
    from tenure.faces.cli.drawing import live_picture

    with live_picture(progress_state, title, started_at, utf8=is_utf8(sys.stderr)):
        yield lambda _: None


def _print_lines(lines: list[ProgressLine]) -> None:
    for line in lines:
        say(text(line, utf8=is_utf8(sys.stderr)))


def text(line: ProgressLine, *, utf8: bool) -> str:
    """One line as it is printed if there is no terminal."""
    mark = MARKS[line.fate]
    sign = mark.sign if utf8 else mark.ascii
    first = (line.detail.splitlines() or [""])[0]  # the end of the operation shows all lines
    if not line.step:
        head = "undoing" if line.fate == "undoing" else ""
        words = ": ".join(filter(None, [head, escape_control(first)]))
        return f"  {'↺' if utf8 and head else sign} {words}"
    words = {"undone": "undone", "stuck": "is stuck", "refused": "failed"}.get(line.fate, "")
    has_reason = line.fate in {"running", "refused", "stuck"}
    why = first if has_reason else ""
    if why.startswith(f"{line.step} "):
        words, why = why.removeprefix(f"{line.step} "), ""
    return f"  {sign} {' '.join(filter(None, [line.step, escape_control(words)]))}" + (
        f": {escape_control(why)}" if why else ""
    )


# ---------------------------------------------------------------------------------------- the end


def report_end(operation: Plain, *, success: str, seconds: float) -> None:
    """Print in one line how the operation ended; CommandExit unless it succeeded."""
    code = OF_STATE[str(operation["state"])]
    why = str(operation["error"] or "")
    took = f"{seconds:.1f} s"
    match str(operation["state"]):
        case "SUCCEEDED":
            say(f"{success} ({took})")
            return
        case "COMPENSATED":
            effect = {
                "create_agent": "left nothing behind",
                "resume_agent": "the agent stays suspended",
            }.get(str(operation["kind"]), "the agent is as it was")
            sentence = f"{operation['kind']} was undone, and {effect} ({took})"
            advice = ""
        case "ABANDONED":
            sentence, advice = f"{operation['kind']} was abandoned, and nothing was undone", ""
        case _:
            sentence = f"{operation['kind']} is stuck ({took})"
            advice = f"tenure operation show {operation['id']} lists the possible commands"
    raise CommandExit(code, f"{sentence}: {why}" if why else sentence, advice=advice)
