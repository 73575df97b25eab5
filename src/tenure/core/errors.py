"""Every error Tenure raises, in one tree.

    TenureError(code)
    ├── CallerError       the request cannot be met as it stands; never retried by us
    │   ├── Invalid            a part of the request is not valid, and is named
    │   ├── Unauthenticated    the request has no valid token
    │   ├── Forbidden          the caller's role is not enough
    │   ├── NotFound           there is no such thing
    │   ├── PreconditionFailed the resource has changed since the caller read it
    │   ├── NotReady           it exists and cannot serve yet
    │   ├── PlanUnknown        an operation follows a plan that this release cannot perform
    │   ├── Conflict           something prevents the request, and is named
    │   ├── LimitExceeded      a value is beyond its limit; nothing was written
    │   └── IllegalTransition  the state machine has no such row; nothing changed
    ├── ProviderError     how a call to a provider can end badly
    │   ├── Unavailable        not applied; retry with the same key
    │   ├── Rejected           refused and not applied; compensate
    │   ├── OutcomeUnknown     may or may not have been applied; inspect by key first, always
    │   └── RuntimeBroken      an agent's runtime did not answer an invocation
    ├── StoreError        the store cannot be used as asked; nothing was touched
    │   ├── StoreLocked        another process holds it
    │   ├── StoreForeign       the file belongs to another program
    │   ├── StoreNewer         written by a newer Tenure
    │   ├── StoreUnsafe        the settings, version or place would not survive a crash
    │   ├── StoreFull          no disk space for new work; accepted work continues
    │   └── StoreClosed        it was closed; nothing is written any more
    ├── EngineError       what executes operations cannot be used as asked; nothing was touched
    └── Defect            our own bug: the operation stops, and nothing more is changed

    StaleToken(BaseException)       another worker has a newer fence token: stop, write nothing
    CommitUnknown(BaseException)   a COMMIT failed half-way: stop the process, recover from disk
    └── StoreRewound               acknowledged changes are lost: stop, then pause the plane

The last three are control flow, so that no `except Exception` catches them.
"""

from enum import StrEnum


class TenureError(Exception):
    """Carries a stable `code` (a word for machines) and a sentence for people."""

    code = "error"


class CallerError(TenureError):
    """The request cannot be met as it stands."""

    code = "refused"


class Invalid(CallerError):
    """A part of the request is not valid; the message names it."""

    code = "invalid"


class Unauthenticated(CallerError):
    """The request has no valid token."""

    code = "unauthenticated"


class Forbidden(CallerError):
    """The role of the caller is not enough."""

    code = "forbidden"


class PreconditionFailed(CallerError):
    """The resource has changed since the caller read it; nothing was written."""

    code = "precondition_failed"


class NotReady(CallerError):
    """It exists and cannot serve yet; try again after `retry_seconds`."""

    code = "not_ready"

    def __init__(self, sentence: str, *, retry_seconds: float = 1.0) -> None:
        super().__init__(sentence)
        self.retry_seconds = retry_seconds


class NotFound(CallerError):
    """There is no such thing."""

    code = "not_found"


class PlanUnknown(CallerError):
    """An operation follows a plan that this release cannot perform; `plan` is its digest."""

    code = "plan_unknown"

    def __init__(self, sentence: str, *, plan: str = "") -> None:
        super().__init__(sentence)
        self.plan = plan


class ConflictCode(StrEnum):
    """What prevents a request; callers may depend on each word.

    `docs/reference/errors.md` explains each, and says what the holder of such a conflict is.
    """

    OPERATION_IN_PROGRESS = "operation_in_progress"
    QUEUE_FULL = "queue_full"
    NOT_ITS_TURN = "not_its_turn"
    PAST_PIVOT = "past_pivot"
    COMPENSATING = "compensating"
    NOT_STUCK = "not_stuck"
    ENDED = "ended"
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch"
    AWAITS_ACKNOWLEDGEMENT = "awaits_acknowledgement"
    NAME_TAKEN = "name_taken"
    WRONG_STATE = "wrong_state"
    SUSPENDED = "suspended"
    QUOTA_EXCEEDED = "quota_exceeded"
    PLAN_EXISTS = "plan_exists"
    RESOLVED = "resolved"
    NOT_LEADING = "not_leading"
    NOT_HELD = "not_held"


class Conflict(CallerError):
    """Something prevents the request: `code` is its kind, `holder` its id."""

    code = "conflict"

    def __init__(
        self, sentence: str, *, code: ConflictCode | None = None, holder: str = ""
    ) -> None:
        super().__init__(sentence)
        if code is not None:
            self.code = code
        self.holder = holder


class LimitExceeded(CallerError):
    """A value is beyond a limit of `tenure.core.limits`; nothing was written."""

    code = "limit_exceeded"


class IllegalTransition(CallerError):
    """The state machine has no such row; nothing changed."""

    code = "illegal_transition"


class ProviderError(TenureError):
    """A call to a provider has failed."""

    code = "provider"


class Unavailable(ProviderError):
    """The provider did not apply the call; it can be repeated with the same key."""

    code = "unavailable"


class Rejected(ProviderError):
    """The provider refused the call and did not apply it."""

    code = "rejected"


class OutcomeUnknown(ProviderError):
    """The call may or may not have been applied."""

    code = "outcome_unknown"


class RuntimeBroken(ProviderError):
    """An agent's runtime did not answer an invocation, or broke off; it may have acted on it."""

    code = "runtime_broken"


class StoreError(TenureError):
    """The store cannot be used as asked; nothing was touched."""

    code = "store"


class StoreLocked(StoreError):
    """Another process holds the store; `holder` is its number, if it is known."""

    code = "store_locked"

    def __init__(self, sentence: str, *, holder: str = "") -> None:
        super().__init__(sentence)
        self.holder = holder


class StoreForeign(StoreError):
    """The file belongs to another program."""

    code = "store_foreign"


class StoreNewer(StoreError):
    """The file was written by a newer Tenure."""

    code = "store_newer"


class StoreUnsafe(StoreError):
    """With these settings, this library or this file system, data could be lost in a crash."""

    code = "store_unsafe"


class StoreFull(StoreError):
    """There is no disk space for new work; accepted work continues."""

    code = "store_full"


class StoreClosed(StoreError):
    """The store was closed: nothing was written, and nothing will be."""

    code = "store_closed"


class EngineError(TenureError):
    """What executes operations cannot be used as asked; nothing was touched."""

    code = "engine"


class Defect(TenureError):
    """Our own bug."""

    code = "defect"


class StaleToken(BaseException):
    """Another worker has claimed the operation, with a greater fence token: stop, write nothing."""


class CommitUnknown(BaseException):
    """A COMMIT failed: whether it is on disk is not known until the store is opened again."""


class StoreRewound(CommitUnknown):
    """The store lacks changes that it had acknowledged: an older copy has taken its place.

    The process stops.  The next one starts paused, until an operator confirms.
    """
