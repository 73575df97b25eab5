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
    """Which lines."""

    after: Annotated[
        str, Meta(pattern=r"^[0-9]{0,15}$(?!\n)", description="`next` of the page before.")
    ] = ""
    limit: Limit = 100


class VerifyAudit(RequestFields, frozen=True):
    """Against what to verify."""

    head: Annotated[
        str, Meta(max_length=128, description="A hash written down before: it must be there.")
    ] = ""


class BrokenLine(ResponseBody, frozen=True):
    """The first line that is not as it was written."""

    position: int
    why: str
    head_missing: Annotated[
        bool,
        Meta(
            description="Every line follows from the one before, and the head that was written"
            " down, or was last seen by this server, is not among them."
        ),
    ]


class AuditVerdict(ResponseBody, frozen=True):
    """What a walk over the chain found."""

    entries: int
    head: str
    broken: BrokenLine | None


class SigningKey(ResponseBody, frozen=True):
    """The key that signs from now on, as `/.well-known/jwks.json` names it."""

    kid: str


class Quota(ResponseBody, frozen=True):
    """How many agents the tenant may have, and has."""

    kind: str
    most: int | None
    used: int


class SetQuota(RequestFields, frozen=True):
    """How many it may have from now on."""

    most: Annotated[int, Meta(ge=0, le=1_000_000_000)]
