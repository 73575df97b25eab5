"""Logs: one line for every attempt that did not go well, with the ids to find it by.

A step that is done writes no line: at thousands of operations a second that would cost more than
the step.  The provider's words are not told either: an agent's own output can stand in them, and
they are kept with the operation.  Lines are JSON objects or plain text; what may stand in one is
the list of `FIELDS`.
"""

import json
import logging
import sys
from typing import Final

from tenure.core.endings import Performed, is_trouble

log = logging.getLogger("tenure.steps")
FIELDS: Final = ("operation", "tenant", "agent", "plan", "step", "act", "attempt", "ending")


def log_trouble(performed: Performed) -> None:
    """A warning for a refusal, and less for what is tried again by itself."""
    ending = performed.ending
    if not is_trouble(ending):
        return
    fields = {
        "operation": performed.operation,
        "tenant": performed.tenant,
        "agent": performed.agent,
        "plan": performed.plan,
        "step": performed.step,
        "act": performed.act,
        "attempt": performed.attempt,
        "ending": ending.code,
    }
    level = logging.WARNING if ending.code == "rejected" else logging.INFO
    names = performed.step, performed.act, performed.operation, ending.code
    log.log(level, "%s.%s of operation %s ended as %s", *names, extra=fields)


class JsonLines(logging.Formatter):
    """One JSON object for each line."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, where it comes from, and of what was handed along only `FIELDS`."""
        line: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        given = vars(record)
        line |= {field: given[field] for field in FIELDS if field in given}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(*, json_lines: bool, level: str = "INFO") -> None:
    """Log to standard error from now on."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if json_lines else plain)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
