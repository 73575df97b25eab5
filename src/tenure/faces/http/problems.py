"""Refusals on the wire: RFC 9457 problems, with one table from code to status.

A `code` is stable; `PROBLEMS` has its status and meaning, and clients look errors up in it.  Only
this module turns an error of ours into a problem.  An unexpected error shows the caller nothing but
an id, and an error of the store does not show where the store is.
"""

import re
from collections.abc import Mapping
from math import ceil
from typing import Final, NamedTuple

import msgspec

from tenure.core.errors import (
    CommitUnknown,
    Conflict,
    Defect,
    Invalid,
    LimitExceeded,
    NotReady,
    ProviderError,
    StoreError,
    StoreRewound,
    TenureError,
)

MEDIA = "application/problem+json"
WITHOUT_OPERATION = frozenset(
    {"name_taken", "wrong_state", "suspended", "quota_exceeded", "resolved", "not_leading"}
)
"""Conflicts that are not caused by another operation."""
OPERATION_ID = re.compile(r"\boperation ([0-9a-f]{32})\b")
FIELD_PREFIX = re.compile(r"([a-z_]+(?:\[[^]]*\]|\.\w+)*): ")
"""The field at the start of an error text, such as `limits.memory: `."""
SEE_LOG = "The control plane's log says more."
"""Replaces the store's own error text, which shows user, host and database, or a path."""
RETRY_SECONDS = 1
"""The default of `retry_after`."""


class Meaning(NamedTuple):
    """The meaning of one code."""

    status: int
    title: str
    """One short line, the same for every problem of the code."""
    advice: str
    """What the caller can do; shown in the reference."""


PROBLEMS: Final[Mapping[str, Meaning]] = {
    # the request cannot be read
    "malformed_json": Meaning(400, "The body is not JSON", "Send one JSON value."),
    "not_utf8": Meaning(400, "The body or the query is not UTF-8", "Encode text as UTF-8."),
    "duplicate_key": Meaning(400, "A key occurs twice", "Use each key of an object once."),
    "lone_surrogate": Meaning(
        400, "Text contains half of a surrogate pair", "Send whole characters."
    ),
    "too_deep": Meaning(400, "The body is nested too deeply", "Nest at most 64 deep."),
    "number_out_of_range": Meaning(
        400,
        "A number cannot be stored",
        "Send finite numbers, and integers of at most 64 bits.",
    ),
    "invalid_field": Meaning(400, "A field is invalid", "`field` says which; see its schema."),
    "missing_field": Meaning(400, "A field is missing", "`field` says which."),
    "unknown_field": Meaning(
        400, "A field is unknown", "`field` says which; unknown fields are never ignored."
    ),
    "unexpected_body": Meaning(400, "The route takes no body", "Send no body."),
    "invalid_parameter": Meaning(400, "A query parameter is invalid", "`field` says which."),
    "unknown_parameter": Meaning(400, "A query parameter is unknown", "`field` says which."),
    "duplicate_parameter": Meaning(400, "A query parameter occurs twice", "Send it once."),
    "invalid_header": Meaning(400, "A header is invalid", "`field` says which."),
    "invalid": Meaning(400, "The request is invalid", "`detail` names the part."),
    "limit_exceeded": Meaning(
        400, "A limit is exceeded", "`detail` says which; nothing was written."
    ),
    # the caller
    "unauthenticated": Meaning(
        401, "A valid bearer token is needed", "Send `Authorization: Bearer TOKEN`."
    ),
    "forbidden": Meaning(
        403, "The token's role does not allow this", "Use a token with the role in `detail`."
    ),
    # the object of the request
    "not_found": Meaning(
        404, "It does not exist", "An object of another tenant looks the same as a missing one."
    ),
    "method_not_allowed": Meaning(
        405, "The path does not have this method", "`Allow` lists the methods."
    ),
    "conflict": Meaning(409, "The request conflicts with the current state", "See `detail`."),
    "operation_in_progress": Meaning(
        409, "An operation works on this agent", "Wait for `operation`, or cancel it."
    ),
    "past_pivot": Meaning(
        409, "It is too late to cancel", "The operation can only go forward; wait for it."
    ),
    "plan_unknown": Meaning(
        409, "Only a newer release can do this", "Send it to a process of that release."
    ),
    "ended": Meaning(409, "The operation has ended", "Start a new one."),
    "resolved": Meaning(409, "The finding is resolved already", "There is nothing to do."),
    "not_leading": Meaning(
        409, "No reconciler runs in this process now", "Retry, or send it to another process."
    ),
    "not_stuck": Meaning(409, "The operation or step is not stuck", "Wait for it, or cancel it."),
    "compensating": Meaning(
        409, "The operation is being undone", "Mark the step absent, or abandon the operation."
    ),
    "illegal_transition": Meaning(
        409, "The current state does not allow this", "`detail` names the state."
    ),
    "queue_full": Meaning(
        409, "Another operation is queued for this agent", "Wait for `operation`, or cancel it."
    ),
    "not_its_turn": Meaning(
        409, "The operation waits for another to end", "Cancel it after it has started."
    ),
    "name_taken": Meaning(409, "An agent of this name exists", "Choose another name."),
    "awaits_acknowledgement": Meaning(
        409,
        "A required subscriber has not acknowledged",
        "Wait for it to acknowledge `operation`, or have an operator override it.",
    ),
    "wrong_state": Meaning(
        409, "The agent's state does not allow this", "`detail` names its state."
    ),
    "suspended": Meaning(409, "The agent is suspended", "Resume it first."),
    "not_held": Meaning(409, "The control plane is not paused", "There is nothing to confirm."),
    "precondition_failed": Meaning(
        412, "The agent has changed since it was read", "Read it again and decide again."
    ),
    "body_too_large": Meaning(413, "The body is too large", "Send at most 1 MiB."),
    "unsupported_media_type": Meaning(
        415, "The body has another media type", "Send `Content-Type: application/json`."
    ),
    "idempotency_mismatch": Meaning(
        422, "The idempotency key was used for another request", "Use a new key."
    ),
    "request_timeout": Meaning(
        408, "The body did not arrive in time", "Send it without pauses; nothing was done."
    ),
    "too_many_requests": Meaning(
        429, "The tenant sends too many requests", "Retry after `retry_after` seconds."
    ),
    "quota_exceeded": Meaning(
        429, "The tenant's quota is used up", "Delete unneeded agents, or raise the quota."
    ),
    "too_many_streams": Meaning(
        429, "The tenant has too many open streams", "Close one, or read pages."
    ),
    # faults that the caller did not cause
    "internal": Meaning(
        500, "The control plane has a bug", "`detail` has an id; find it in the log."
    ),
    "provider": Meaning(502, "A provider failed", "`detail` has its error text."),
    "rejected": Meaning(502, "A provider refused", "`detail` has its error text."),
    "outcome_unknown": Meaning(
        502, "A provider did not answer", "Check whether it took effect, then retry."
    ),
    "runtime_broken": Meaning(502, "The agent's runtime did not answer", "See its logs."),
    "unavailable": Meaning(503, "A provider is not available", "Retry later."),
    "not_ready": Meaning(503, "The agent is not ready yet", "Retry after `retry_after` seconds."),
    "starting": Meaning(
        503, "The control plane is not ready", "Retry after `retry_after` seconds."
    ),
    "stopping": Meaning(503, "The control plane is stopping", "Retry after `retry_after` seconds."),
    "held": Meaning(
        503,
        "The control plane is paused: its store was restored",
        "Review with `GET /v1/plane/review`, then `POST /v1/plane:confirm`.",
    ),
    "too_many_connections": Meaning(
        503, "There are too many connections", "Retry after `retry_after` seconds."
    ),
    "store": Meaning(503, "The store cannot be used", "Nothing was written; retry."),
    "store_full": Meaning(503, "The store is full", "Accepted operations are not lost."),
    "store_closed": Meaning(503, "The store is closed", "Nothing was written; retry."),
    "engine": Meaning(503, "The engine cannot be used", "Accepted operations are not lost; retry."),
    "commit_unknown": Meaning(
        503,
        "The outcome of the commit is unknown",
        "The control plane restarts; then read `operation`, or repeat with the same key.",
    ),
}


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A refusal as the caller sees it (RFC 9457)."""

    type: str
    title: str
    status: int
    code: str
    detail: str = ""
    field: str = ""
    """The part of the request that is invalid."""
    operation: str = ""
    """The operation that conflicts, or whose outcome is unknown."""
    retry_after: int = 0
    """Seconds after which to retry."""


class ProblemError(Exception):
    """A request that the HTTP layer refuses before it reaches the application."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        field: str = "",
        *,
        allow: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(detail or code)
        self.code = code
        self.detail = detail
        self.field = field
        self.allow = allow
        """The methods that the path allows."""
        self.retry_after = retry_after


class ProblemAnswer(NamedTuple):
    """A problem and the headers that go with it."""

    problem: Problem
    headers: tuple[tuple[bytes, bytes], ...] = ()


def problem(
    code: str, detail: str = "", *, field: str = "", operation: str = "", retry_after: int = 0
) -> ProblemAnswer:
    """The problem of this code; 429 and 503 always have `retry_after`."""
    meaning = PROBLEMS[code]
    if meaning.status in {429, 503}:
        retry_after = max(retry_after, RETRY_SECONDS)
    body = Problem(
        type=f"urn:tenure:problem:{code}",
        title=meaning.title,
        status=meaning.status,
        code=code,
        detail=detail,
        field=field,
        operation=operation,
        retry_after=retry_after,
    )
    headers = ((b"retry-after", b"%d" % retry_after),) if retry_after else ()
    return ProblemAnswer(body, headers)


def of_problem_error(error: ProblemError) -> ProblemAnswer:
    """The problem for a refusal of the HTTP layer."""
    retry_after = ceil(error.retry_after)
    body, headers = problem(error.code, error.detail, field=error.field, retry_after=retry_after)
    if error.allow:
        headers += ((b"allow", error.allow.encode()),)
    return ProblemAnswer(body, headers)


def of_error(error: TenureError) -> ProblemAnswer | None:
    """The problem for an error of ours; None for a bug, whose text callers must not see."""
    code = error.code
    if isinstance(error, Defect) or code not in PROBLEMS:
        fallback = _family(error)
        if fallback is None:
            return None
        code = fallback
    prefix = FIELD_PREFIX.match(str(error)) if isinstance(error, Invalid) else None
    holder = error.holder if isinstance(error, Conflict) and code not in WITHOUT_OPERATION else ""
    return problem(
        code,
        f"{PROBLEMS[code].advice} {SEE_LOG}" if isinstance(error, StoreError) else str(error),
        field=prefix[1] if prefix else "",
        operation=holder,
        retry_after=ceil(error.retry_seconds) if isinstance(error, NotReady) else 0,
    )


def _family(error: TenureError) -> str | None:
    """The general code of the error's class, for an error whose own code is not in the table."""
    for kind, code in (
        (Conflict, "conflict"),
        (LimitExceeded, "limit_exceeded"),
        (StoreError, "store"),
        (ProviderError, "provider"),
    ):
        if isinstance(error, kind):
            return code
    return None


def of_lost_commit(error: CommitUnknown) -> ProblemAnswer:
    """The problem for a commit whose outcome is unknown; it has the id of the operation."""
    operation = OPERATION_ID.search(str(error))
    detail = "The control plane restarts; the outcome is known after that."
    if isinstance(error, StoreRewound):
        detail = "The database server has lost acknowledged changes: the control plane stops."
    operation_id = operation[1] if operation else ""
    return problem("commit_unknown", detail, operation=operation_id, retry_after=2)
