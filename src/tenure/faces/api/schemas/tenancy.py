"""The audit log and quotas on the wire."""

from typing import Annotated, Any

from msgspec import Meta

from tenure.faces.api.schemas.forms import Instant, Limit, RequestFields, ResponseBody


class AuditEntry(ResponseBody, frozen=True):
    """One line of the audit log."""

    position: int
    principal: str
    action: str
    target: str
    at: Instant
    body: Any
    hash: str


class AuditEntries(ResponseBody, frozen=True):
    """A page of the audit log, oldest first."""

    items: list[AuditEntry]
    next: str | None


class ListAudit(RequestFields, frozen=True):
    """The page of the audit log to list."""

    after: Annotated[
        str, Meta(pattern=r"^[0-9]{0,15}$(?!\n)", description="`next` of the previous page.")
    ] = ""
    limit: Limit = 100


class VerifyAudit(RequestFields, frozen=True):
    """The head to verify the audit log against."""

    head: Annotated[
        str, Meta(max_length=128, description="A head hash noted earlier; the log must contain it.")
    ] = ""


class BrokenLine(ResponseBody, frozen=True):
    """The first line that was changed."""

    position: int
    why: str
    head_missing: Annotated[
        bool,
        Meta(
            description="The chain itself is intact, but the head that was noted earlier, or that"
            " this server last saw, is not in it: lines at the end are missing."
        ),
    ]


class AuditVerdict(ResponseBody, frozen=True):
    """The result of a verification of the chain."""

    entries: int
    head: str
    broken: BrokenLine | None


class SigningKey(ResponseBody, frozen=True):
    """The new signing key, by its name in `/.well-known/jwks.json`."""

    kid: str


class Quota(ResponseBody, frozen=True):
    """The number of agents that the tenant may have, and the number that it has."""

    kind: str
    most: int | None
    used: int


class SetQuota(RequestFields, frozen=True):
    """The new maximum of agents."""

    most: Annotated[int, Meta(ge=0, le=1_000_000_000)]
