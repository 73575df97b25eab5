"""Every refusal as it stands on the wire: RFC 9457 problems, one table from code to status.

A `code` is a stable word; `PROBLEMS` says its status and what it means, and is read backwards by
whoever calls us.  An error of ours becomes a problem here and nowhere else; of an unforeseen one
the caller learns an id and no more, and of the store not where it is.
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
OF_AGENTS = frozenset(
    {"name_taken", "wrong_state", "suspended", "quota_exceeded", "resolved", "not_leading"}
)
"""Conflicts in which no operation stands in the way."""
OPERATION_ID = re.compile(r"\boperation ([0-9a-f]{32})\b")
PLACE = re.compile(r"([a-z_]+(?:\[[^]]*\]|\.\w+)*): ")
"""How a sentence names the field that it is about."""
LOGGED = "The control plane's log says more."
"""Instead of the store's own words, which tell user, host and database, or a path."""
RETRY_SECONDS = 1
"""What a caller is told to wait where nothing better is known."""


class Meaning(NamedTuple):
    """What one code stands for."""

    status: int
    title: str
    """One short line, always the same."""
    advice: str
    """What a caller can do about it; for the reference."""


PROBLEMS: Final[Mapping[str, Meaning]] = {
    # the request cannot be read
    "malformed_json": Meaning(400, "The body is not JSON", "Send one JSON value."),
    "not_utf8": Meaning(400, "The body or the query is not UTF-8", "Encode text as UTF-8."),
    "duplicate_key": Meaning(400, "A key is given twice", "Give each key of an object once."),
    "lone_surrogate": Meaning(400, "Text holds half of a surrogate pair", "Send whole characters."),
    "too_deep": Meaning(400, "The body is nested too deeply", "Nest at most 64 deep."),
    "number_out_of_range": Meaning(
        400,
        "A number is not one that can be kept",
        "Send finite numbers, and integers of at most 64 bits.",
    ),
    "invalid_field": Meaning(400, "A field does not fit", "`field` says which; see its schema."),
    "missing_field": Meaning(400, "A field is missing", "`field` says which."),
    "unknown_field": Meaning(
        400, "A field is not known", "`field` says which; nothing is ignored in silence."
    ),
    "unexpected_body": Meaning(400, "No body is expected here", "Send none."),
    "invalid_parameter": Meaning(400, "A query parameter does not fit", "`field` says which."),
    "unknown_parameter": Meaning(400, "A query parameter is not known", "`field` says which."),
    "duplicate_parameter": Meaning(400, "A query parameter is given twice", "Give it once."),
    "invalid_header": Meaning(400, "A header does not fit", "`field` says which."),
    "invalid": Meaning(400, "The request makes no sense", "`detail` names the part."),
    "limit_exceeded": Meaning(400, "A bound was met", "`detail` says which; nothing was written."),
    # the caller
    "unauthenticated": Meaning(
        401, "A valid bearer token is needed", "Send `Authorization: Bearer TOKEN`."
    ),
    "forbidden": Meaning(
        403, "The token's role does not allow this", "Ask with a token of the role in `detail`."
    ),
    # what is asked for
    "not_found": Meaning(
        404, "There is no such thing", "What belongs to others looks the same as what is not there."
    ),
    "method_not_allowed": Meaning(405, "Not by this method", "`Allow` lists the methods."),
    "conflict": Meaning(409, "Something stands in the way", "`detail` names it."),
    "operation_in_progress": Meaning(
        409, "An operation works on this agent", "Wait for `operation`, or cancel it."
    ),
    "past_pivot": Meaning(409, "It is too late to cancel", "There is only forward; wait for it."),
    "plan_unknown": Meaning(
        409, "Only a newer release can do this", "Ask a process of that release."
    ),
    "ended": Meaning(409, "The operation has ended", "Ask for a new one."),
    "resolved": Meaning(409, "The finding is resolved already", "Nothing is left to do."),
    "not_leading": Meaning(
        409, "No reconciler looks in this process now", "Ask again, or another process."
    ),
    "not_stuck": Meaning(409, "Nothing is stuck there", "Wait for it, or cancel it."),
    "compensating": Meaning(
        409, "The operation is being undone", "Mark the step absent, or abandon the operation."
    ),
    "illegal_transition": Meaning(409, "Not in this state", "`detail` names the state."),
    "queue_full": Meaning(
        409, "Another operation is queued for this agent", "Wait for `operation`, or cancel it."
    ),
    "not_its_turn": Meaning(
        409, "The operation waits for another to end", "Cancel it when its turn has come."
    ),
    "name_taken": Meaning(409, "An agent of this name exists", "Choose another name."),
    "awaits_acknowledgement": Meaning(
        409,
        "A required subscriber has not acknowledged",
        "Wait for it to acknowledge `operation`, or have an operator override it.",
    ),
    "wrong_state": Meaning(409, "Not as the agent stands", "`detail` names its state."),
    "suspended": Meaning(409, "The agent is suspended", "Resume it first."),
    "not_held": Meaning(409, "The control plane is not held", "There is nothing to confirm."),
    "precondition_failed": Meaning(
        412, "It has changed since it was read", "Read it again and decide again."
    ),
    "body_too_large": Meaning(413, "The body is too large", "Send at most 1 MiB."),
    "unsupported_media_type": Meaning(
        415, "The body is of another kind", "Send `Content-Type: application/json`."
    ),
    "idempotency_mismatch": Meaning(
        422, "The idempotency key was used for another request", "Use a new key."
    ),
    "request_timeout": Meaning(
        408, "The body did not come in time", "Send it at once; nothing was done."
    ),
    "too_many_requests": Meaning(
        429, "The tenant asks too often, or for too much at once", "Ask again after `retry_after`."
    ),
    "quota_exceeded": Meaning(
        429, "The tenant's quota is used up", "Delete what is not needed, or ask for more."
    ),
    "too_many_streams": Meaning(
        429, "The tenant follows too many streams", "Close one, or ask for pages."
    ),
    # it is not the caller
    "internal": Meaning(500, "Something broke here", "`detail` holds an id; the log has more."),
    "provider": Meaning(502, "A provider failed", "`detail` holds its words."),
    "rejected": Meaning(502, "A provider refused", "`detail` holds its words."),
    "outcome_unknown": Meaning(502, "A provider did not answer", "Look before asking again."),
    "runtime_broken": Meaning(502, "The agent's runtime did not answer", "See its logs."),
    "unavailable": Meaning(503, "A provider is not available", "Ask again later."),
    "not_ready": Meaning(503, "The agent is not ready yet", "Ask again after `retry_after`."),
    "starting": Meaning(503, "The control plane is not ready", "Ask again after `retry_after`."),
    "stopping": Meaning(503, "The control plane is stopping", "Ask again after `retry_after`."),
    "held": Meaning(
        503,
        "The control plane is held: its store was restored",
        "Look with `GET /v1/plane/review`, then `POST /v1/plane:confirm`.",
    ),
    "too_many_connections": Meaning(
        503, "There are too many connections", "Ask again after `retry_after`."
    ),
    "store": Meaning(503, "The store cannot be used", "Nothing was written; ask again."),
    "store_full": Meaning(503, "There is no room for new work", "What was accepted is kept."),
    "store_closed": Meaning(503, "The store is closed", "Nothing was written; ask again."),
    "engine": Meaning(503, "The engine cannot be used", "What was accepted is kept; ask again."),
    "commit_unknown": Meaning(
        503,
        "It is not known whether this was kept",
        "The control plane restarts; ask for `operation` then, or repeat with the same key.",
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
    """The part of the request that does not fit."""
    operation: str = ""
    """The operation that stands in the way, or whose fate is not known."""
    retry_after: int = 0
    """Seconds after which to ask again."""


class ProblemError(Exception):
    """A request that this face refuses before any use case sees it."""

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
        """The methods that would do."""
        self.retry_after = retry_after


class ProblemAnswer(NamedTuple):
    """A problem and the headers that go with it."""

    problem: Problem
    headers: tuple[tuple[bytes, bytes], ...] = ()


def problem(
    code: str, detail: str = "", *, field: str = "", operation: str = "", retry_after: int = 0
) -> ProblemAnswer:
    """The problem of this code; 429 and 503 always say when to ask again."""
    known = PROBLEMS[code]
    if known.status in {429, 503}:
        retry_after = max(retry_after, RETRY_SECONDS)
    made = Problem(
        type=f"urn:tenure:problem:{code}",
        title=known.title,
        status=known.status,
        code=code,
        detail=detail,
        field=field,
        operation=operation,
        retry_after=retry_after,
    )
    headers = ((b"retry-after", b"%d" % retry_after),) if retry_after else ()
    return ProblemAnswer(made, headers)


def of_problem_error(error: ProblemError) -> ProblemAnswer:
    """A refusal of this face."""
    retry_after = ceil(error.retry_after)
    made, headers = problem(error.code, error.detail, field=error.field, retry_after=retry_after)
    if error.allow:
        headers += ((b"allow", error.allow.encode()),)
    return ProblemAnswer(made, headers)


def of_error(error: TenureError) -> ProblemAnswer | None:
    """An error of ours as a problem; None if it is our own bug, whose words are not for others."""
    code = error.code
    if isinstance(error, Defect) or code not in PROBLEMS:
        fallback = _family(error)
        if fallback is None:
            return None
        code = fallback
    named = PLACE.match(str(error)) if isinstance(error, Invalid) else None
    holder = error.holder if isinstance(error, Conflict) and code not in OF_AGENTS else ""
    return problem(
        code,
        f"{PROBLEMS[code].advice} {LOGGED}" if isinstance(error, StoreError) else str(error),
        field=named[1] if named else "",
        operation=holder,
        retry_after=ceil(error.retry_seconds) if isinstance(error, NotReady) else 0,
    )


def _family(error: TenureError) -> str | None:
    """The code of its kind, for one that has a word of its own which is not in the table."""
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
    """A commit whose outcome nobody knows: the operation is named, so that it can be looked up."""
    named = OPERATION_ID.search(str(error))
    detail = "The control plane restarts and will know then."
    if isinstance(error, StoreRewound):
        detail = "The database server has lost acknowledged changes: the control plane stops."
    return problem("commit_unknown", detail, operation=named[1] if named else "", retry_after=2)
