"""The exit codes of commands, and the errors that carry them.

Scripts depend on the codes: a code never changes its meaning.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """The exit codes."""

    OK = 0
    FAILED = 1
    """The operation failed or was undone."""
    USAGE = 2
    """The command line or a file is invalid."""
    DIFFERS = 3
    """Files and agents differ; only with `--detailed-exitcode`."""
    AUTHENTICATION = 4
    """There is no token, or its role does not allow this."""
    TIMED_OUT = 5
    STUCK = 6
    """The operation needs an operator."""
    INTERRUPTED = 130


OF_STATE: Final = {
    "SUCCEEDED": Exit.OK,
    "COMPENSATED": Exit.FAILED,
    "ABANDONED": Exit.FAILED,
    "STUCK": Exit.STUCK,
}
"""The exit code of a command that waited for an operation, by the operation's state."""

REWOUND: Final = (
    "make sure that the right server is the primary, then start the plane again: it is paused until"
    " tenure restore --review and tenure restore --confirm"
)
"""The advice after a process stopped because its database lost acknowledged commits."""

OF_STATUS: Final = {
    400: Exit.USAGE,
    401: Exit.AUTHENTICATION,
    403: Exit.AUTHENTICATION,
    413: Exit.USAGE,
    422: Exit.USAGE,
}
"""The exit code by the status of a refusal; for any other status it is FAILED."""

ADVICE: Final = {
    "unauthenticated": "give a token: --token-file FILE, or TENURE_TOKEN=…",
    "forbidden": "use a token with that role; an admin makes one: tenure token create",
    "not_found": "tenure {noun} list shows the existing ones",
    "name_taken": "tenure agent show {agent}",
    "wrong_state": "tenure agent show {agent}",
    "suspended": "tenure agent resume {agent}",
    "not_ready": "try again in a moment; tenure operation list --open shows the open operations",
    "runtime_broken": "tenure agent logs {agent}",
    "operation_in_progress": (
        "tenure operation watch {operation}; suspend, resume and delete can wait for it: --queue"
    ),
    "queue_full": "tenure operation watch {operation}",
    "awaits_acknowledgement": "tenure operation show {operation} lists the possible commands",
    "commit_unknown": "once the control plane is back: tenure operation show {operation}",
    "past_pivot": "the operation can only go forward: tenure operation watch {operation}",
    "quota_exceeded": "tenure quota show",
    "starting": "tenure wait returns when it is ready",
    "held": "tenure restore --review shows the effects, tenure restore --confirm ends the pause",
    "not_leading": "try again; another process may be the leader: --address URL",
    "store": "try again; tenure doctor checks the store",
    "store_full": "free some disk space, then try again; tenure doctor shows the free space",
}
"""The next command to try, by the code of a refusal."""
ABSENT: Final = re.compile("there is no (agent|finding|operation|subscription|token) ")
"""The server's text for a missing object of a kind that can be listed."""


class CommandExit(Exception):
    """The command ends with this code; an empty sentence: everything is printed already."""

    def __init__(self, code: Exit, sentence: str = "", *, advice: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.advice = advice


class ServerRefusal(CommandExit):
    """The server refused: an RFC 9457 problem."""

    def __init__(self, status: int, problem: Mapping[str, object], *, agent: str = "") -> None:
        self.status = status
        self.problem_code = str(problem.get("code", ""))
        self.operation = str(problem.get("operation", ""))
        detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
        suffix = f" ({self.problem_code})" if self.problem_code else ""
        advice = ADVICE.get(self.problem_code, "")
        absent = ABSENT.match(detail)
        about = {
            "agent": agent,
            "operation": self.operation,
            "noun": absent[1] if absent else "",
        }
        if any(f"{{{name}}}" in advice and not value for name, value in about.items()):
            advice = ""
        super().__init__(
            OF_STATUS.get(status, Exit.FAILED), detail + suffix, advice=advice.format(**about)
        )


class Unreachable(CommandExit):
    """No server answers."""

    def __init__(self, sentence: str, *, advice: str = "") -> None:
        super().__init__(Exit.FAILED, sentence, advice=advice)
