"""How a command ends: one number for each kind of end, and the errors that carry it.

A number is a promise to scripts: it never changes its meaning.
"""

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
    "name_taken": "tenure agent show {agent}",
    "suspended": "tenure agent resume {agent}",
    "not_ready": "try again in a moment; tenure operation list --open shows what is under way",
    "runtime_broken": "tenure agent logs {agent}",
    "operation_in_progress": (
        "tenure operation watch {operation}; suspend, resume and delete can wait for it: --queue"
    ),
    "queue_full": "tenure operation watch {operation}",
    "awaits_acknowledgement": (
        "once it has done its part: tenure subscription acknowledge; tenure tenant show lists all"
    ),
    "commit_unknown": "once the control plane is back: tenure operation show {operation}",
    "past_pivot": "there is only forward: tenure operation watch {operation}",
    "quota_exceeded": "tenure quota show",
}
"""What to type next, by the code of a refusal."""


class Ended(Exception):
    """The command ends here with this code; an empty sentence: all is said already."""

    def __init__(self, code: Exit, sentence: str = "", *, advice: str = "") -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.advice = advice


class Refused(Ended):
    """The server refused: an RFC 9457 problem."""

    def __init__(self, status: int, problem: Mapping[str, object], *, agent: str = "") -> None:
        self.status = status
        self.problem_code = str(problem.get("code", ""))
        self.operation = str(problem.get("operation", ""))
        said = str(problem.get("detail") or problem.get("title") or f"the server said {status}")
        named = f" ({self.problem_code})" if self.problem_code else ""
        advice = ADVICE.get(self.problem_code, "")
        if ("{agent}" in advice and not agent) or ("{operation}" in advice and not self.operation):
            advice = ""
        super().__init__(
            OF_STATUS.get(status, Exit.FAILED),
            said + named,
            advice=advice.format(agent=agent, operation=self.operation),
        )


class Unreachable(Ended):
    """No server answers."""

    def __init__(self, sentence: str, *, advice: str = "") -> None:
        super().__init__(Exit.FAILED, sentence, advice=advice)
