"""Writes one log line for every failed attempt, with the ids of its operation and agent.

A successful step writes no line: at thousands of operations a second that would cost more than the
step.  The provider's text is not written, because it can contain an agent's own output; it is
stored with the operation.  Lines are JSON objects or plain text with the fields of `FIELDS`.
"""

import json
import logging
import sys
from copy import copy
from typing import Final, TextIO

from tenure.core.endings import PerformedMove, is_error
from tenure.core.errors import Defect, StoreError, TenureError

log = logging.getLogger("tenure.steps")
FIELDS: Final = ("operation", "tenant", "agent", "plan", "step", "act", "attempt", "ending")
REPEAT_SECONDS: Final = 60.0
"""How long a repeated line is not written again."""
LINES_MAX: Final = 1_000
"""Lines that are remembered; beyond that the memory is cleared."""
ABOVE: Final = "the same error of the store as above"
"""Replaces an error text of the store that was just written."""


def log_failure(move: PerformedMove) -> None:
    """Log a failed move: a warning if it was rejected, info if it is retried."""
    ending = move.ending
    if not is_error(ending):
        return
    fields = {
        "operation": move.operation,
        "tenant": move.tenant,
        "agent": move.agent,
        "plan": move.plan,
        "step": move.step,
        "act": move.act,
        "attempt": move.attempt,
        "ending": ending.code,
    }
    level = logging.WARNING if ending.code == "rejected" else logging.INFO
    names = move.step, move.act, move.operation, ending.code
    log.log(level, "%s.%s of operation %s ended as %s", *names, extra=fields)


class JsonLines(logging.Formatter):
    """One JSON object for each line."""

    def format(self, record: logging.LogRecord) -> str:
        """The message, its logger, and the extra fields that are listed in `FIELDS`."""
        line: dict[str, object] = {
            "at": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        arguments = vars(record)
        line |= {field: arguments[field] for field in FIELDS if field in arguments}
        if record.exc_info and record.exc_info[0] is not None:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class RepeatFilter(logging.Filter):
    """Suppresses repeated lines, so that an outage of hours is not logged by every retry.

    A TenureError is logged by its text, without a traceback.  An error of the store reaches many
    callers at once; within REPEAT_SECONDS its text is written once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._written: dict[tuple[str, str, str], tuple[float, int]] = {}
        """The time of each written line, and the number of its repeats since."""
        self._store_errors: dict[str, float] = {}
        """The time at which each error text of the store was written, in any line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write the record."""
        error = record.exc_info[1] if record.exc_info else None
        arguments = record.args if isinstance(record.args, tuple) else ()
        store_errors = [str(one) for one in (error, *arguments) if isinstance(one, StoreError)]
        if isinstance(error, TenureError) and not isinstance(error, Defect):
            record.msg, record.args = f"{record.getMessage()}: {error}", ()
            record.exc_info = record.exc_text = None
        line = (record.name, record.getMessage(), repr(record.exc_info and record.exc_info[1]))
        at, repeats = self._written.get(line, (0.0, 0))
        if record.levelno < logging.WARNING or record.created > at + REPEAT_SECONDS:
            if len(self._written) > LINES_MAX:
                self._written.clear()
            self._written[line] = (record.created, 0)
            text = self._shorten(line[1], store_errors, record.created)
            if repeats:
                text = f"{text} (suppressed {repeats} more times since)"
            if text != line[1]:
                record.msg, record.args = text, ()
            return True
        self._written[line] = (at, repeats + 1)
        return False

    def _shorten(self, line: str, store_errors: list[str], now: float) -> str:
        for sentence in store_errors:
            if now <= self._store_errors.get(sentence, 0.0) + REPEAT_SECONDS:
                line = line.replace(sentence, ABOVE)
                continue
            if len(self._store_errors) > LINES_MAX:
                self._store_errors.clear()
            self._store_errors[sentence] = now
        return line


class _Stream(logging.StreamHandler[TextIO]):
    """Filters a copy of each record, so that other handlers get the unchanged one."""

    def handle(self, record: logging.LogRecord) -> bool:
        return super().handle(copy(record))


def configure(*, json_lines: bool, level: str = "INFO") -> None:
    """Log to standard error from now on."""
    handler = _Stream(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if json_lines else plain)
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
