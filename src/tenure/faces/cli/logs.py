"""Follows what an agent prints: piece after piece by offset, over restarts of its runtime."""

import time
from collections import deque
from typing import NamedTuple

from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import ServerRefusal
from tenure.faces.cli.output import pass_on, say

LOOK_SECONDS = 0.5
AGENT_EVERY = 4
"""Looks at the log between two looks at the agent."""
NOT_FOUND = 404
OVER = {"DELETED", "CREATE_FAILED"}
"""States of an agent after which it prints nothing any more."""


def follow(client: Client, name: str, *, lines: int) -> None:
    """Write the last lines, then whatever comes, until the agent is gone."""
    uid, known = _agent(client, name)
    since, looks = _begin(client, uid, lines), 0
    if known.state == "SUSPENDED":
        say(f"agent {name} is suspended: what it prints once it is resumed comes here; ctrl-c ends")
    while known.state not in OVER:
        time.sleep(LOOK_SECONDS)
        looks += 1
        try:
            since = _drain(client, uid, since)
            if looks % AGENT_EVERY == 0:
                _, now = _agent(client, uid)
                if now.state in OVER:
                    return
                if now != known:  # maybe another runtime with a new log
                    at = _again(client, uid, since)
                    known, since = (known, since) if at is None else (now, at)
        except ServerRefusal as error:
            if error.status == NOT_FOUND:
                return
            raise


class Stand(NamedTuple):
    """Whatever changes when an agent gets another runtime."""

    generation: int
    state: str


def _agent(client: Client, name: str) -> tuple[str, Stand]:
    found = client.get(path("agents", name))
    return str(found["uid"]), Stand(int(found["generation"]), str(found["state"]))


def _begin(client: Client, uid: str, lines: int) -> int:
    """Write the last lines that are kept; where to go on."""
    last: deque[str] = deque(maxlen=lines)
    since, rest = 0, ""
    while True:
        part = client.get(path("agents", uid, "logs"), {"since": since})
        if not part["text"]:
            break
        *whole, rest = (rest + part["text"]).split("\n")
        last.extend(whole)
        since = part["next_offset"]
    pass_on("".join(f"{line}\n" for line in last) + rest)
    return since


def _drain(client: Client, uid: str, since: int) -> int:
    """Write all that came since; where to go on."""
    while True:
        part = client.get(path("agents", uid, "logs"), {"since": since})
        if not part["text"]:
            return since
        pass_on(part["text"])
        since = int(part["next_offset"])


def _again(client: Client, uid: str, since: int) -> int | None:
    """Where to go on after the agent has changed: a new log is shorter than the old one was.

    None: nothing is there yet by which it could be told.
    """
    end = 0
    while True:
        part = client.get(path("agents", uid, "logs"), {"since": end})
        if not part["text"] or end >= since:
            break
        end = int(part["next_offset"])
    if not end:
        return None
    return since if end >= since else 0
