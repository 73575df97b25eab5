"""The rows of operations.

This module builds every write of the tables `operation`, `journal` and `intent`.  Engines change
these rows too; adapters do not import `app`, so it is here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tenure.core import decisions
from tenure.core.operation import Intent, OperationState
from tenure.core.records.operation import OperationRecord
from tenure.core.records.table import key_of
from tenure.ports.store import Drop, LoadedOperation, PreparedGuard, PreparedWrite, Row, Set

OPERATION_KEY, STEP_KEY = ("id",), ("operation", "step")
NEW_OPERATION = PreparedWrite(
    "operation",
    OPERATION_KEY,
    ("tenant", "principal", "kind", "plan", "agent", "generation", "state", "revision", "token",
     "worker", "due_at", "input", "created_at", "updated_at"),
    adds=True,
)  # fmt: skip
NEW_ENTRY = PreparedWrite(
    "journal", ("operation", "seq"), ("tenant", "kind", "step", "at", "body"), adds=True
)
NEW_INTENT = PreparedWrite(
    "intent", STEP_KEY, ("tenant", "slot", "key", "state", "token", "attempts", "due_at"), adds=True
)
_TOKEN = PreparedGuard("intent", STEP_KEY, ("token",))
_REVISION = PreparedGuard("operation", OPERATION_KEY, ("revision",))


class _PreparedWrites(dict[Any, PreparedWrite]):
    """Prepared writes by the columns that vary, made at first use."""

    def __init__(self, make: Callable[[Any], PreparedWrite]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Any) -> PreparedWrite:  # noqa: ANN401
        prepared = self[key] = self._make(key)
        return prepared


def _entry_update(key: tuple[tuple[str, ...], bool]) -> PreparedWrite:
    columns, by_command = key
    guards = (_REVISION,) if by_command else (_TOKEN, _REVISION)
    columns = ("revision", "updated_at", *columns)
    return PreparedWrite("operation", OPERATION_KEY, columns, guards=guards)


OPERATION_UPDATES = _PreparedWrites(_entry_update)
"""Headers of the operation's row when its journal gets an entry.

The key has two parts: the columns that the entry changes besides `revision` and `updated_at`, and
whether a command makes the entry.  The entry of a step also guards the token of the step's intent.
"""
INTENT_UPDATES = _PreparedWrites(partial(PreparedWrite, "intent", STEP_KEY))
"""The row of an intent, by the columns that change."""
POLL = PreparedWrite(
    "operation", OPERATION_KEY, ("due_at", "state", "updated_at"), guards=(_TOKEN, _REVISION)
)
"""The row of an operation with a step that is not done yet."""


def change_input(operation: OperationRecord, text: str) -> Set:
    """Write the input of the steps, as JSON."""
    columns: Row = {"input": text, "revision": operation.revision + 1}
    return Set("operation", key_of(operation), columns)


def touch_operation(operation: str, now: float) -> Set:
    """Write that the operation was changed now, so that it is kept for a while."""
    return Set("operation", (operation,), {"updated_at": now})


def claim_operation(operation: str, worker: str, *, token: int, revision: int, starts: bool) -> Set:
    """Give the operation to a worker, as `Store.claim`; one that was PENDING `starts` to run."""
    columns: Row = {"worker": worker, "token": token, "revision": revision}
    if starts:
        columns["state"] = OperationState.RUNNING
    return Set("operation", (operation,), columns)


def claim_step(
    operation: str, step: str, intent: Intent, *, token: int, unknown_since: float | None
) -> Set:
    """Raise the token of a step, and write since when the end of its call is unknown."""
    columns: Row = {"token": token}
    if unknown_since != intent.unknown_since:
        columns["unknown_since"] = unknown_since
    return Set("intent", (operation, step), columns)


def release_operation(operation: str, *, worker: str = "", state: str = "") -> Set:
    """Take the operation from its worker; with a `state`, it returns to that state."""
    columns: Row = {"worker": worker}
    return Set("operation", (operation,), {**columns, "state": state} if state else columns)


def burn_intent(operation: str, step: str) -> Set:
    """Write that the resource of a step was removed and that its key is not used again."""
    return Set("intent", (operation, step), decisions.REMOVED)


def drop_operation(loaded: LoadedOperation) -> tuple[Drop, ...]:
    """Drop an operation with its journal and its intents."""
    return (
        *(Drop("journal", key_of(one)) for one in loaded.journal),
        *(Drop("intent", key_of(one)) for one in loaded.intents),
        Drop("operation", key_of(loaded.operation)),
    )
