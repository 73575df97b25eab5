"""How a command ends: one number for each kind of end, and the errors that carry it.

A number is a promise to scripts: it never changes its meaning.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class Exit(IntEnum):
    """The exit codes."""

    OK = 0
    FAILED = 1
    """It failed, or was undone."""
    USAGE = 2
    """What was typed, or what a file says, makes no sense."""
    DIFFERS = 3
    """Files and agents differ; only with `--detailed-exitcode`."""
    AUTHENTICATION = 4
    """No token, or one that is not good for this."""
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
"""How a command ends that waited for an operation, by the state that this settled in."""

REWOUND: Final = (
    "see that the right server is the primary, then start it again: the plane is paused until"
    " tenure restore --review and tenure restore --confirm"
)
"""The advice to who runs a process that stopped because its store had gone backwards."""

OF_STATUS: Final = {
    400: Exit.USAGE,
    401: Exit.AUTHENTICATION,
    403: Exit.AUTHENTICATION,
    413: Exit.USAGE,
    422: Exit.USAGE,
}
"""How a command ends by the status of a refusal; by any other it has failed."""

ADVICE: Final = {
    "unauthenticated": "give a token: --token-file FILE, or TENURE_TOKEN=…",
    "forbidden": "ask with a token of that role; an admin makes one: tenure token create",
    "not_found": "tenure {noun} list shows which there are",
    "name_taken": "tenure agent show {agent}",
    "wrong_state": "tenure agent show {agent}",
    "suspended": "tenure agent resume {agent}",
    "not_ready": "try again in a moment; tenure operation list --open shows what is under way",
    "runtime_broken": "tenure agent logs {agent}",
    "operation_in_progress": (
        "tenure operation watch {operation}; suspend, resume and delete can wait for it: --queue"
    ),
    "queue_full": "tenure operation watch {operation}",
    "awaits_acknowledgement": "tenure operation show {operation} tells what can be done",
    "commit_unknown": "once the control plane is back: tenure operation show {operation}",
    "past_pivot": "there is only forward: tenure operation watch {operation}",
    "quota_exceeded": "tenure quota show",
    "starting": "tenure wait returns when it is ready",
    "held": "tenure restore --review shows what confirming would mean, --confirm lets it go",
    "not_leading": "say it again; of several processes another may lead: --address URL",
    "store": "say it again; tenure doctor tells what is the matter with it",
    "store_full": "make room, then say it again; tenure doctor tells how much there is",
}
"""What to type next, by the code of a refusal."""
ABSENT: Final = re.compile("there is no (agent|finding|operation|subscription|token) ")
"""How the server says that something which can be listed is not there."""


class CommandExit(Exception):
    """The command ends here with this code; an empty sentence: all is said already."""

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
        said = str(problem.get("detail") or problem.get("title") or f"the server said {status}")
        named = f" ({self.problem_code})" if self.problem_code else ""
        advice = ADVICE.get(self.problem_code, "")
        absent = ABSENT.match(said)
        about = {
            "agent": agent,
            "operation": self.operation,
            "noun": absent[1] if absent else "",
        }
        if any(f"{{{name}}}" in advice and not value for name, value in about.items()):
            advice = ""
        super().__init__(
            OF_STATUS.get(status, Exit.FAILED), said + named, advice=advice.format(**about)
        )


class Unreachable(CommandExit):
    """No server answers."""

    def __init__(self, sentence: str, *, advice: str = "") -> None:
        super().__init__(Exit.FAILED, sentence, advice=advice)
