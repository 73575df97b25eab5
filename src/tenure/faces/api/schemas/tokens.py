"""Tokens on the wire."""

from typing import Annotated

from msgspec import Meta

from tenure.app.tenancy.tokens import TokenView
from tenure.core.limits import IDENTIFIER_CHARACTERS_MAX, NAME_PATTERN
from tenure.core.roles import Role
from tenure.faces.api.schemas.forms import Id, Instant, RequestFields, ResponseBody


class Token(ResponseBody, frozen=True):
    """A token, without its secret."""

    id: Id
    tenant: str
    principal: str
    role: Role
    created_at: Instant
    expires_at: float | None
    revoked_at: float | None
    epoch: int
    """The plane's epoch in which it was issued; it is invalid in a later one."""
    void: bool
    """Whether a restore has made it invalid."""


class NewToken(Token, frozen=True):
    """A new token with its secret, which is shown only here."""

    token: str


class TokenList(ResponseBody, frozen=True):
    """The tenant's tokens."""

    items: list[Token]
    next: str | None = None


Tenant = Annotated[str, Meta(pattern=rf"^({NAME_PATTERN})?$(?!\n)")]


class ListTokens(RequestFields, frozen=True):
    """The tenant whose tokens are listed."""

    tenant: Tenant = ""
    """A tenant other than the caller's own: only for admins of the tenant `default`."""


class CreateToken(RequestFields, frozen=True):
    """The principal and role of a new token."""

    principal: Annotated[
        str,
        Meta(min_length=1, max_length=IDENTIFIER_CHARACTERS_MAX, pattern=r"^[ -~]+$(?!\n)"),
    ]
    role: Role
    tenant: Tenant = ""
    """A tenant other than the caller's own: only for admins of the tenant `default`."""
    seconds: Annotated[float, Meta(gt=0, le=315_360_000)] | None = None
    """How long it is valid; null: until it is revoked."""


def token(view: TokenView, *, epoch: int) -> Token:
    """The response body for a token in this epoch of the plane."""
    return Token(**view._asdict(), void=view.epoch != epoch)
