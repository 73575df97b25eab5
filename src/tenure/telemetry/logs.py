"""Logs: one line for every attempt that did not go well, with the ids to find it by.

A step that is done writes no line: at thousands of operations a second that would cost more than
the step.  The provider's words are not told either: an agent's own output can stand in them, and
they are kept with the operation.  Lines are JSON objects or plain text; what may stand in one is
the list of `FIELDS`.
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
SPARED_SECONDS: Final = 60.0
"""How long a line that comes again is not written."""
LINES_MAX: Final = 1_000
"""Lines that are remembered; beyond that all are forgotten."""
ABOVE: Final = "as the store said above"
"""In place of a sentence of the store that was just written."""


def log_trouble(performed: PerformedMove) -> None:
    """A warning for a refusal, and less for what is tried again by itself."""
    ending = performed.ending
    if not is_error(ending):
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


class Sparing(logging.Filter):
    """Lets a line through that was not just written: what lasts for hours is not told by each try.

    An error that is a sentence of ours is told by it, and not by where in the code it was met.
    What the store says is met by everybody at once, so within that time it is written once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str, str], tuple[float, int]] = {}
        """When each line was written, and how often it would have been since."""
        self._stores: dict[str, float] = {}
        """When each sentence of the store was written, in whichever line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write it."""
        error = record.exc_info[1] if record.exc_info else None
        given = record.args if isinstance(record.args, tuple) else ()
        stores = [str(one) for one in (error, *given) if isinstance(one, StoreError)]
        if isinstance(error, TenureError) and not isinstance(error, Defect):
            record.msg, record.args = f"{record.getMessage()}: {error}", ()
            record.exc_info = record.exc_text = None
        line = (record.name, record.getMessage(), repr(record.exc_info and record.exc_info[1]))
        at, spared = self._said.get(line, (0.0, 0))
        if record.levelno < logging.WARNING or record.created > at + SPARED_SECONDS:
            if len(self._said) > LINES_MAX:
                self._said.clear()
            self._said[line] = (record.created, 0)
            told = self._abridged(line[1], stores, record.created)
            if spared:
                told = f"{told} ({spared} times more meanwhile)"
            if told != line[1]:
                record.msg, record.args = told, ()
            return True
        self._said[line] = (at, spared + 1)
        return False

    def _abridged(self, line: str, stores: list[str], now: float) -> str:
        for sentence in stores:
            if now <= self._stores.get(sentence, 0.0) + SPARED_SECONDS:
                line = line.replace(sentence, ABOVE)
                continue
            if len(self._stores) > LINES_MAX:
                self._stores.clear()
            self._stores[sentence] = now
        return line


class _Stream(logging.StreamHandler[TextIO]):
    """Writes lines of its own: what is spared here is whole for whoever else listens."""

    def handle(self, record: logging.LogRecord) -> bool:
        return super().handle(copy(record))


def configure(*, json_lines: bool, level: str = "INFO") -> None:
    """Log to standard error from now on."""
    handler = _Stream(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if json_lines else plain)
    handler.addFilter(Sparing())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
