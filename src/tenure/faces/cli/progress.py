"""Shows an operation while it is waited for: each step as it is done, and as it is undone.

What is shown is learnt from the operation's records as the server streams them, and where that does
not work from looking again and again; both feed the same picture, so a line is never shown twice.
A server that goes away is waited for: an operation that was accepted goes on when it is back.
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
from tenure.faces.cli.options import Waits
from tenure.faces.cli.output import is_utf8, plain, say

SETTLED: Final = frozenset(OF_STATE)
PENDING: Final = "PENDING"
"""Accepted, and claimed by nobody yet: no step of it runs."""
SILENCE_SECONDS = 15.0
"""The server sends a heartbeat every five seconds; so much silence is a dead connection."""
AWAY_SECONDS = 60.0
"""How long a server that went away is waited for."""
LOOK_SECONDS = 1.0
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
SPOKEN: Final = frozenset({"done", "refused", "undone", "stuck"})
"""Fates that get a line of their own where lines are all there is; so does what is waited for."""


class ProgressLine(NamedTuple):
    """Something that happened; `step` is empty if it is about the operation as a whole."""

    step: str
    fate: str
    detail: str = ""


@dataclass(slots=True)
class Picture:
    """Where every step stands, as far as is known."""

    kind: str
    state: str
    fates: dict[str, str]
    details: dict[str, str] = field(default_factory=dict)
    last: int = 0
    """The number of the last record that was heard."""
    back: bool = False
    """Whether it is being undone."""
    waits: str = ""
    """Why nobody has begun with it, if that is known."""

    @classmethod
    def of(cls, operation: Plain) -> "Picture":
        """Nothing has happened yet as far as we were told."""
        return cls(
            str(operation["kind"]),
            str(operation["state"]),
            {str(step["name"]): "" for step in operation["steps"]},
        )

    def hear(self, record: Plain) -> list[ProgressLine]:
        """What a record of the journal tells."""
        if int(record["seq"]) <= self.last:
            return []
        self.last, self.state = int(record["seq"]), str(record["state"])
        step, body = str(record["step"]), record.get("body")
        why = str(body.get("why") or "") if isinstance(body, dict) else ""
        match record["kind"]:
            case "done" | "adopted":
                return self._now(step, "done")
            case "refused":
                return [*self._now(step, "refused", why), *self._turned("")]
            case "compensating":
                return self._turned(why)
            case "undone":
                return self._now(step, "undone")
            case "marked_absent":  # on the way forward it is done again
                return self._now(step, "undone" if self.back else "running")
            case "stuck":
                return self._now(step, "stuck", why)
            case "abandoned":
                return [ProgressLine("", "stuck", "abandoned as it is")]
            case "retried":
                self._stuck_no_more()
                return []
            case _:
                return []

    def see(self, operation: Plain) -> list[ProgressLine]:
        """What the operation itself tells: it also knows what is under way, and says why."""
        self.state = str(operation["state"])
        lines: list[ProgressLine] = []
        if self.state in {"COMPENSATING", "COMPENSATED"}:
            lines += self._turned(str(operation["error"]))
        for step in operation["steps"]:
            name, detail = str(step["name"]), str(step["detail"])
            fate = "stuck" if step["stuck"] else WORD_OF_STATE.get(str(step["state"] or ""), "")
            fate = "" if fate == "running" and self.state == PENDING else fate
            lines += self._now(name, fate, detail)
        return lines

    def _now(self, step: str, fate: str, detail: str = "") -> list[ProgressLine]:
        was = self.fates.get(step, "")
        if fate == "refused" and was in {"undoing", "undone"}:
            return []
        self.fates[step] = fate
        news = fate != was and fate in SPOKEN
        news |= fate == "running" and detail not in {"", self.details.get(step, "")}
        if detail or fate != was:  # why it failed stays, though nobody repeats it
            self.details[step] = detail
        return [ProgressLine(step, fate, detail)] if news else []

    def _turned(self, why: str) -> list[ProgressLine]:
        if self.back:
            return []
        self.back = True
        return [ProgressLine("", "undoing", why)]

    def wait(self, why: str) -> list[ProgressLine]:
        """Nobody has begun with it, for this reason; empty: somebody has."""
        before, self.waits = self.waits, why
        return [ProgressLine("", "running", why)] if why and why != before else []

    def _stuck_no_more(self) -> None:
        for step, fate in self.fates.items():
            if fate == "stuck":
                self.fates[step] = "undoing" if self.back else "running"

    def running(self) -> str:
        """The step that is under way, by the order of the plan, if nobody told."""
        if self.state in SETTLED or self.state == PENDING or self.back:
            return ""
        return next((name for name, fate in self.fates.items() if fate in {"", "running"}), "")


# ------------------------------------------------------------------------------------------ waiting


def follow(
    client: Client,
    operation: Plain,
    *,
    waits: Waits,
    tell: Callable[[list[ProgressLine]], None],
    picture: Picture,
) -> dict[str, Any]:
    """The operation once it is settled; Ended with TIMED_OUT if that takes too long."""
    name = str(operation["id"])
    until = None if waits.timeout is None else time.monotonic() + waits.timeout
    streams = True
    while True:
        if streams:
            streams = _stream(client, name, picture, tell, until)
        left = _seconds_left(until)
        seconds = LOOK_SECONDS if left is None else max(0.0, min(LOOK_SECONDS, left))
        if streams or picture.state in SETTLED:
            seconds = 0.0
        seen = _poll(client, name, seconds, until)
        tell(picture.see(seen))
        if seen["state"] in SETTLED:
            return seen
        if left is not None and left <= 0:
            state = f"{seen['kind']} is {seen['state']} after {waits.timeout:g} s and goes on"
            why = f": {_why_unclaimed(client)}" if seen["state"] == PENDING else _why(seen)
            raise CommandExit(Exit.TIMED_OUT, state + why, advice=f"tenure operation watch {name}")


def _why(operation: Plain) -> str:
    """What it waits for, if it says so."""
    told = (str(step["detail"]) for step in operation["steps"] if step["state"] == "INTENDED")
    first = next((detail.splitlines()[0] for detail in told if detail), "")
    return f": {first}" if first else ""


def _why_unclaimed(client: Client) -> str:
    """Why nobody has begun with it, as far as the server knows."""
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
    picture: Picture,
    tell: Callable[[list[ProgressLine]], None],
    until: float | None,
) -> bool:
    """Hear records until the operation is settled, time is up or the connection breaks.

    Whether streaming works here at all: a proxy may not let it through.
    """
    left = _seconds_left(until)
    silence = SILENCE_SECONDS if left is None else min(SILENCE_SECONDS, max(left, 0.05))
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(picture.last)}
    try:
        with client.stream(
            "GET", path("operations", name, "events"), headers=headers, seconds=silence
        ) as answer:
            if answer.status != 200:  # noqa: PLR2004 (HTTP's own word for it)
                raise client.refusal(answer)
            if "text/event-stream" not in (answer.getheader("Content-Type") or ""):
                return False
            for event, data in events(client.lines(answer)):
                if event == "settled":
                    return True
                if event:
                    tell(picture.hear(json.loads(data)))
                else:  # a heartbeat: look why it takes so long
                    tell(picture.see(client.get(path("operations", name))))
                    tell(picture.wait("" if picture.state != PENDING else _why_unclaimed(client)))
                left = _seconds_left(until)
                if left is not None and left <= 0:
                    return True
    except ServerRefusal as error:
        if error.code is Exit.AUTHENTICATION or error.status == 404:  # noqa: PLR2004 (not found)
            raise
        return False
    except (Unreachable, ValueError):
        pass  # it went away, or time is up: the look that follows tells which
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


def watch(client: Client, operation: Plain, *, waits: Waits, title: str = "") -> dict[str, Any]:
    """Show the operation until it is settled; the operation then."""
    picture = Picture.of(operation)
    started = time.monotonic()
    try:
        with _display(picture, title or picture.kind, started) as tell:
            return follow(client, operation, waits=waits, tell=tell, picture=picture)
    except KeyboardInterrupt:
        raise CommandExit(
            Exit.INTERRUPTED,
            "interrupted; the operation goes on",
            advice=f"tenure operation watch {operation['id']}",
        ) from None


@contextmanager
def _display(
    picture: Picture, title: str, started: float
) -> Iterator[Callable[[list[ProgressLine]], None]]:
    if not sys.stderr.isatty():
        yield _print_lines
        return
    from tenure.faces.cli.drawing import live_picture

    with live_picture(picture, title, started, utf8=is_utf8(sys.stderr)):
        yield lambda _: None


def _print_lines(lines: list[ProgressLine]) -> None:
    for line in lines:
        say(text(line, utf8=is_utf8(sys.stderr)))


def text(line: ProgressLine, *, utf8: bool) -> str:
    """One line as it is printed where there is no terminal."""
    mark = MARKS[line.fate]
    sign = mark.sign if utf8 else mark.ascii
    first = (line.detail.splitlines() or [""])[0]  # how it ended is told with all of them
    if not line.step:
        head = "undoing" if line.fate == "undoing" else ""
        words = ": ".join(filter(None, [head, plain(first)]))
        return f"  {'↺' if utf8 and head else sign} {words}"
    words = {"undone": "undone", "stuck": "is stuck", "refused": "failed"}.get(line.fate, "")
    told = line.fate in {"running", "refused", "stuck"}
    why = first if told else ""
    if why.startswith(f"{line.step} "):
        words, why = why.removeprefix(f"{line.step} "), ""
    return f"  {sign} {' '.join(filter(None, [line.step, plain(words)]))}" + (
        f": {plain(why)}" if why else ""
    )


# ------------------------------------------------------------------------------------- how it ended


def report_end(operation: Plain, *, what: str, seconds: float) -> None:
    """Say in one line how it ended; Ended with the code of that unless all is well."""
    code = OF_STATE[str(operation["state"])]
    why = str(operation["error"] or "")
    took = f"{seconds:.1f} s"
    match str(operation["state"]):
        case "SUCCEEDED":
            say(f"{what} ({took})")
            return
        case "COMPENSATED":
            left = {
                "create_agent": "left nothing behind",
                "resume_agent": "the agent stays suspended",
            }.get(str(operation["kind"]), "the agent is as it was")
            sentence = f"{operation['kind']} was undone, and {left} ({took})"
            advice = ""
        case "ABANDONED":
            sentence, advice = f"{operation['kind']} was abandoned as it was", ""
        case _:
            sentence = f"{operation['kind']} is stuck ({took})"
            advice = f"tenure operation show {operation['id']} tells what can be done"
    raise CommandExit(code, f"{sentence}: {why}" if why else sentence, advice=advice)
