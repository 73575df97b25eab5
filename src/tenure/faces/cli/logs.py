"""Follows the log of an agent by offset, across restarts of its runtime."""

import time
from collections import deque
from typing import NamedTuple

from tenure.faces.cli.client import Client, path
from tenure.faces.cli.exits import ServerRefusal
from tenure.faces.cli.output import print_agent_output, say

POLL_SECONDS = 0.5
AGENT_EVERY = 4
"""The agent is read once for so many reads of its log."""
NOT_FOUND = 404
END_STATES = {"DELETED", "CREATE_FAILED"}
"""States after which an agent writes no more log."""


def follow(client: Client, name: str, *, lines: int) -> None:
    """Print the last lines, then new ones, until the agent is deleted."""
    uid, version = _agent(client, name)
    since, reads = _print_last_lines(client, uid, lines), 0
    if version.state == "SUSPENDED":
        say(f"agent {name} is suspended: its log continues after a resume; ctrl-c ends")
    while version.state not in END_STATES:
        time.sleep(POLL_SECONDS)
        reads += 1
        try:
            since = _print_since(client, uid, since)
            if reads % AGENT_EVERY == 0:
                _, new_version = _agent(client, uid)
                if new_version.state in END_STATES:
                    return
                if new_version != version:  # maybe another runtime with a new log
                    offset = _resume_offset(client, uid, since)
                    if offset is not None:
                        version, since = new_version, offset
        except ServerRefusal as error:
            if error.status == NOT_FOUND:
                return
            raise


class RuntimeVersion(NamedTuple):
    """The fields of an agent that change when it gets a new runtime."""

    generation: int
    state: str


def _agent(client: Client, name: str) -> tuple[str, RuntimeVersion]:
    found = client.get(path("agents", name))
    return str(found["uid"]), RuntimeVersion(int(found["generation"]), str(found["state"]))


def _print_last_lines(client: Client, uid: str, lines: int) -> int:
    """Print the last lines; return the offset after them."""
    last: deque[str] = deque(maxlen=lines)
    since, rest = 0, ""
    while True:
        part = client.get(path("agents", uid, "logs"), {"since": since})
        if not part["text"]:
            break
        *whole, rest = (rest + part["text"]).split("\n")
        last.extend(whole)
        since = part["next_offset"]
    print_agent_output("".join(f"{line}\n" for line in last) + rest)
    return since


def _print_since(client: Client, uid: str, since: int) -> int:
    """Print everything after this offset; return the new offset."""
    while True:
        part = client.get(path("agents", uid, "logs"), {"since": since})
        if not part["text"]:
            return since
        print_agent_output(part["text"])
        since = int(part["next_offset"])


def _resume_offset(client: Client, uid: str, since: int) -> int | None:
    """The offset at which to continue after the agent changed: a shorter log is a new one.

    None: the log is still empty, so that it cannot be decided yet.
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
