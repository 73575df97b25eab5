"""Every error Tenure raises, in one tree.

    TenureError(code)
    ├── CallerError       the request cannot be met as it stands; never retried by us
    │   ├── Invalid            it makes no sense (a plan, a name, a size)
    │   ├── Unauthenticated    nobody knows who asks
    │   ├── Forbidden          who asks may not
    │   ├── NotFound           there is no such thing
    │   ├── PreconditionFailed what was read before has changed since
    │   ├── NotReady           it is there and cannot serve yet
    │   ├── PlanUnknown        an operation follows a plan that this release cannot perform
    │   ├── Conflict           something stands in the way, and is named
    │   ├── LimitExceeded      a bound was met; nothing was written
    │   └── IllegalTransition  the state machine has no such row; nothing changed
    ├── ProviderError     how a call to a provider can end badly
    │   ├── Unavailable        not applied; retry with the same key
    │   ├── Rejected           a definite no; compensate
    │   ├── OutcomeUnknown     may or may not have been applied; inspect by key first, always
    │   └── RuntimeBroken      an agent's runtime did not answer an invocation
    ├── StoreError        the store cannot be used as asked; nothing was touched
    │   ├── StoreLocked        another process holds it
    │   ├── StoreForeign       the file belongs to another program
    │   ├── StoreNewer         written by a newer Tenure
    │   ├── StoreUnsafe        the settings, version or place would not survive a crash
    │   ├── StoreFull          no room for new work; accepted work is kept
    │   └── StoreClosed        it was closed; nothing is written any more
    ├── EngineError       what executes operations cannot be used as asked; nothing was touched
    └── Defect            our own bug: this operation stops loudly, nothing more is touched

    StaleToken(BaseException)       someone else works on this now: stop, touch nothing
    CommitUnknown(BaseException)   a COMMIT failed half-way: stop the process, recover from disk
    └── StoreRewound               acknowledged changes are lost: stop, then pause the plane

The last three are control flow that no `except Exception` may eat.
"""

from enum import StrEnum


class TenureError(Exception):
    """Carries a stable `code` (a word for machines) and a sentence for people."""

    code = "error"


class CallerError(TenureError):
    """The request cannot be met as it stands."""

    code = "refused"


class Invalid(CallerError):
    """The request makes no sense; the sentence names the part."""

    code = "invalid"


class Unauthenticated(CallerError):
    """Nobody knows who asks."""

    code = "unauthenticated"


class Forbidden(CallerError):
    """Who asks may not."""

    code = "forbidden"


class PreconditionFailed(CallerError):
    """What the caller read before has changed since; nothing was written."""

    code = "precondition_failed"


class NotReady(CallerError):
    """It is there and cannot serve yet; ask again after `retry_seconds`."""

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
    """What kind of thing stands in the way of a request; callers may depend on each word.

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
    """Something stands in the way; `code` says what kind of thing, `holder` names it."""

    code = "conflict"

    def __init__(
        self, sentence: str, *, code: ConflictCode | None = None, holder: str = ""
    ) -> None:
        super().__init__(sentence)
        if code is not None:
            self.code = code
        self.holder = holder


class LimitExceeded(CallerError):
    """A bound of `tenure.core.limits` was met; nothing was written."""

    code = "limit_exceeded"


class IllegalTransition(CallerError):
    """The state machine has no such row; nothing changed."""

    code = "illegal_transition"


class ProviderError(TenureError):
    """How a call to a provider can end badly."""

    code = "provider"


class Unavailable(ProviderError):
    """The provider did not apply the call; the same key may be sent again."""

    code = "unavailable"


class Rejected(ProviderError):
    """The provider said a definite no."""

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
    """The settings, the library's version or the place would not survive a crash."""

    code = "store_unsafe"


class StoreFull(StoreError):
    """There is no room for new work; what was accepted is kept."""

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
    """Someone else works on this now: stop and touch nothing more."""


class CommitUnknown(BaseException):
    """A COMMIT failed half-way: nobody knows what is on disk until it is read again."""


class StoreRewound(CommitUnknown):
    """The store lacks changes that it had acknowledged: an older copy has taken its place.

    The process stops.  The next one starts paused, until an operator confirms.
    """
