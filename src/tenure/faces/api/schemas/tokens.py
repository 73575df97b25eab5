"""Tokens on the wire."""

from typing import Annotated

from msgspec import Meta

from tenure.app.tenancy.tokens import TokenView
from tenure.core.limits import IDENTIFIER_CHARACTERS_MAX, NAME_PATTERN
from tenure.core.roles import Role
from tenure.faces.api.schemas.forms import Id, Instant, RequestFields, ResponseBody


class Token(ResponseBody, frozen=True):
    """A token: all but the token itself."""

    id: Id
    tenant: str
    principal: str
    role: Role
    created_at: Instant
    expires_at: float | None
    revoked_at: float | None
    epoch: int
    """The plane's epoch in which it was issued; in a later one it is no good."""
    void: bool
    """Whether it is no good since a restore."""


class NewToken(Token, frozen=True):
    """A new token, with the token itself: it is shown here and nowhere else."""

    token: str


class TokenList(ResponseBody, frozen=True):
    """The tenant's tokens."""

    items: list[Token]
    next: str | None = None


Tenant = Annotated[str, Meta(pattern=rf"^({NAME_PATTERN})?$(?!\n)")]


class ListTokens(RequestFields, frozen=True):
    """Whose tokens are listed."""

    tenant: Tenant = ""
    """Another tenant than the caller's own: for admins of the tenant `default` alone."""


class CreateToken(RequestFields, frozen=True):
    """For whom a token is."""

    principal: Annotated[
        str,
        Meta(min_length=1, max_length=IDENTIFIER_CHARACTERS_MAX, pattern=r"^[ -~]+$(?!\n)"),
    ]
    role: Role
    tenant: Tenant = ""
    """Another tenant than the caller's own: for admins of the tenant `default` alone."""
    seconds: Annotated[float, Meta(gt=0, le=315_360_000)] | None = None
    """How long it is good; null: until it is revoked."""


def token(view: TokenView, *, epoch: int) -> Token:
    """A token as it is told in this epoch of the plane."""
    return Token(**view._asdict(), void=view.epoch != epoch)
