"""Records of operations: the operation, its lock, journal, intents, tombstones, request keys."""

from typing import Annotated, NamedTuple

from tenure.core.operation import EntryKind, IntentState, OperationState
from tenure.core.records.table import declares_table


@declares_table("operation", key=("id",), columns={"plan_name": "kind", "plan_digest": "plan"})
class OperationRecord(NamedTuple):
    """One execution of a plan."""

    id: str
    """The identifier; a later one is greater."""
    tenant: str
    """The tenant that it works for."""
    principal: str
    """The caller who asked for it."""
    plan_name: str
    """The name of its plan; the column is `kind`."""
    plan_digest: str
    """The digest of the plan that it follows to its end; the column is `plan`."""
    agent: str
    """The uid of the row of `agent` that it locks."""
    generation: int
    """The generation of that row which it made; part of the keys of its resources."""
    state: Annotated[str, OperationState]
    """Where it is; see the table in `tenure.core.operation`."""
    revision: int
    """Raised by every journal entry and claim: a writer that read an older one reads again."""
    token: int
    """The fence token of its worker; it grows with every claim."""
    worker: str
    """The worker that claimed it; empty: none has."""
    due_at: float | None
    """When the engine continues it; NULL: only after a signal."""
    input: str
    """The input of its steps as JSON."""
    error: str | None
    """Why it is or was undone, or why a do is stuck; NULL or empty: neither.  No stuck undos."""
    created_at: float
    """When it was accepted."""
    updated_at: float
    """When its last journal entry was written; a claim does not change it."""
    ended_at: float | None
    """When it ended; NULL: it is open."""


@declares_table("agent", key=("uid",))
class LockRecord(NamedTuple):
    """The columns of a row of `agent` by which an operation locks it.

    The other columns belong to the subject of the operation, and the kernel does not read them.
    Only `find` reads this record.
    """

    uid: str
    """The identifier of the row."""
    tenant: str
    """The tenant that it belongs to."""
    generation: int
    """How many operations were accepted for it, with or without the lock; part of their keys."""
    operation: str | None
    """The operation that has the lock; NULL: none."""
    next: str | None
    """The operation that waits for the lock; NULL: none."""


@declares_table("journal", key=("operation", "seq"))
class JournalRecord(NamedTuple):
    """One entry of an operation's journal, which is append-only."""

    operation: str
    """The operation."""
    seq: int
    """Its place in the journal, from 1 without gaps."""
    tenant: str
    """The tenant of the operation."""
    kind: Annotated[str, EntryKind]
    """What was recorded."""
    step: str
    """The step that it is about; empty: the operation as a whole."""
    at: float
    """When it was recorded."""
    body: str
    """A result, a cause or a signal's payload, as JSON."""


@declares_table("intent", key=("operation", "step"))
class IntentRecord(NamedTuple):
    """The resource that one step makes; written before the first call of the step."""

    operation: str
    """The operation."""
    step: str
    """The step of its plan."""
    tenant: str
    """The tenant of the operation."""
    slot: str
    """The kind of resource that the step makes; empty: it makes none."""
    key: str
    """The key of the resource at its provider."""
    state: Annotated[str, IntentState]
    """What is known of the resource.  It stays INTENDED when the step is done (decision 0014)."""
    token: int
    """The fence token under which the end of the step may be recorded."""
    attempts: int
    """Failures in a row of the calls of this step; a NotYet or Waiting starts again at 0."""
    due_at: float | None
    """When the step is called again; NULL: only after a signal."""
    unknown_since: float | None
    """Since when the outcome of a call is unknown; NULL: it is known."""
    waiting_on: str | None
    """`count:signal`: it waits until the journal has that many signals of that name."""
    detail: str | None
    """The provider's last message."""


@declares_table("tombstone", key=("operation", "step"), columns={"absences": "sightings"})
class TombstoneRecord(NamedTuple):
    """A key that was burned a short time ago: a resource that appears under it is removed."""

    operation: str
    """The operation whose intent has the key."""
    step: str
    """The step of that intent."""
    until: float
    """The time until which the key is inspected."""
    absences: int
    """How many inspects in a row found nothing under the key; the column is `sightings`."""


@declares_table(
    "idempotency",
    key=("tenant", "principal", "route", "key"),
    columns={"stored_value": "operation"},
)
class IdempotencyRecord(NamedTuple):
    """A request that was accepted, under the key that its caller chose for it."""

    tenant: str
    """The tenant of the caller."""
    principal: str
    """The caller."""
    route: str
    """The command that was requested."""
    key: str
    """The `Idempotency-Key` of the request."""
    stored_value: str
    """The id of what was made, or a value that the first attempt chose, sealed if it is secret."""
    fingerprint: str
    """A hash of the request: the same key with another one is refused."""
    at: float
    """When it was accepted."""
    answer: str | None
    """The first answer, sealed if it shows a secret; NULL: `stored_value` names what to read."""
