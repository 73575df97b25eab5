"""Issues, checks and revokes API tokens; the store has their hashes, never the tokens.

The tenant of every request comes from its token and from nowhere else.  An admin issues, lists and
revokes the tokens of its own tenant; an admin of the plane's own tenant those of every tenant.  For
other callers a token of another tenant looks the same as one that does not exist.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.pages import list_all
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import audit_line
from tenure.core.agent import NAME
from tenure.core.errors import Forbidden, Invalid, NotFound, Unauthenticated
from tenure.core.ids import uuid7
from tenure.core.limits import IDENTIFIER_CHARACTERS_MAX
from tenure.core.records import TokenRecord
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import Change, Is, Put, Row, Set

PREFIX = "tenure_"
PLANE_TENANT = "default"
PLANE_STARTER = Caller(PLANE_TENANT, "tenure up", Role.ADMIN)
"""The caller in the audit log for changes at the start of the plane."""
FIRST_EPOCH = 1
"""The epoch of a token that was issued before there were epochs."""
LENGTH_MAX = 128
"""The most characters of a token; a longer one is refused without hashing it."""


class TokenView(NamedTuple):
    """A token as callers see it, without the token itself."""

    id: str
    tenant: str
    principal: str
    role: Role
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    epoch: int = FIRST_EPOCH
    """The plane's epoch in which it was issued; it is valid only in that epoch."""


async def authenticate(plane: Plane, token: str) -> Caller:
    """The caller of this token; Unauthenticated if it is unknown, revoked or expired.

    The token is found by its hash, so the time of a comparison reveals nothing about it.
    """
    row = None
    if 0 < len(token) <= LENGTH_MAX and token.isascii():
        row = await plane.store.find(TokenRecord, (_hash(token),))
    now = plane.store.now()
    if row is None or row.revoked_at is not None:
        raise Unauthenticated("this token is not known here, or was revoked; see tenure token")
    if not _is_current(plane, row):
        raise Unauthenticated("this token was issued before the plane was restored; get a new one")
    expires_at = row.expires_at
    if expires_at is not None and expires_at <= now:
        raise Unauthenticated("this token has expired; ask an admin for a new one")
    return Caller(row.tenant, str(row.principal), Role(row.role))


async def create_token(
    plane: Plane,
    caller: Caller,
    *,
    principal: str,
    role: Role,
    tenant: str = "",
    seconds: float | None = None,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> tuple[TokenView, str]:
    """Issue a token; its text is returned only here, and to a repeat of the same request."""
    tenant = _tenant(caller, tenant)
    if not NAME.fullmatch(tenant):
        raise Invalid("tenant: a lower-case letter, then such letters, digits and -; 63 at most")
    if not principal.isprintable() or not 0 < len(principal) <= IDENTIFIER_CHARACTERS_MAX:
        most = IDENTIFIER_CHARACTERS_MAX
        raise Invalid(f"principal: printable text of at most {most} characters")
    if seconds is not None and not seconds > 0:
        raise Invalid("seconds: must be greater than 0")
    now = plane.store.now()
    token = PREFIX + urlsafe_b64encode(plane.entropy.secret()).decode().rstrip("=")
    expires_at = None if seconds is None else now + seconds
    name = uuid7(now, plane.entropy.bits())
    view = TokenView(name, tenant, principal, role, now, expires_at, None, plane.pause.epoch)
    result = view, token
    await idempotency.commit(plane, Change("", (), _token_rows(caller, *result)), result)
    return result


async def store_first_token(plane: Plane, token: str) -> None:
    """Store the first admin token of the plane, which was made before the store was opened."""
    now = plane.store.now()
    name = uuid7(now, plane.entropy.bits())
    view = TokenView(name, PLANE_TENANT, "admin", Role.ADMIN, now, None, None, plane.pause.epoch)
    await plane.store.commit(Change("", (), _token_rows(PLANE_STARTER, view, token)))


async def list_tokens(plane: Plane, caller: Caller, *, tenant: str = "") -> Sequence[TokenView]:
    """The tokens of a tenant, by default the caller's, also those that are no longer valid."""
    tenant = _tenant(caller, tenant)
    found = [_view(row) for row in await list_all(plane.store, TokenRecord, {"tenant": tenant})]
    return sorted(found, key=lambda view: view.id)


async def revoke_token(
    plane: Plane,
    caller: Caller,
    token_id: str,
    *,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> TokenView:
    """Revoke a token; a second revocation succeeds and keeps the first time."""
    require(caller, Role.ADMIN)
    columns: Row = {"id": token_id}
    if caller.tenant != PLANE_TENANT:
        columns["tenant"] = caller.tenant
    rows = await plane.store.list_rows(TokenRecord, columns, limit=1)
    if not rows:
        raise NotFound(f"there is no token {token_id}")
    if rows[0].revoked_at is not None:
        return _view(rows[0])
    guard = Is("token", (rows[0].hash,), {"revoked_at": None})
    now = plane.store.now()
    audit_row = audit_line(caller, "token.revoke", target=token_id, now=now)
    write = Set("token", (rows[0].hash,), {"revoked_at": now})
    view = _view(rows[0]._replace(revoked_at=now))
    change = Change("", (guard,), (write, audit_row))
    if await idempotency.commit(plane, change, view) is not None:  # another request was first
        return await revoke_token(plane, caller, token_id, idempotency=idempotency)
    return view


def require_plane_admin(caller: Caller) -> None:
    """Forbidden unless the caller is an admin of the plane's own tenant."""
    require(caller, Role.ADMIN)
    if caller.tenant != PLANE_TENANT:
        raise Forbidden(f"this needs an admin of the tenant {PLANE_TENANT}")


def _is_current(plane: Plane, row: TokenRecord) -> bool:
    """Whether a token was issued in the epoch that the plane is in."""
    return (row.epoch or FIRST_EPOCH) == plane.pause.epoch


def _tenant(caller: Caller, tenant: str) -> str:
    """The tenant whose tokens are requested; NotFound if this caller may not see them."""
    require(caller, Role.ADMIN)
    tenant = tenant or caller.tenant
    if caller.tenant not in {tenant, PLANE_TENANT}:
        raise NotFound(f"there is no tenant {tenant}")
    return tenant


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _token_rows(caller: Caller, view: TokenView, token: str) -> tuple[Put, Put]:
    """The token's row, and the audit entry of its creation."""
    whose = {"principal": view.principal, "role": view.role, "tenant": view.tenant}
    audit_row = audit_line(caller, "token.create", target=view.id, now=view.created_at, **whose)
    row: Row = {
        "id": view.id,
        "tenant": view.tenant,
        "principal": view.principal,
        "role": view.role,
        "created_at": view.created_at,
        "expires_at": view.expires_at,
        "epoch": view.epoch,
    }
    return Put("token", (_hash(token),), row), audit_row


def _view(row: TokenRecord) -> TokenView:
    return TokenView(
        row.id,
        row.tenant,
        str(row.principal),
        Role(row.role),
        row.created_at,
        row.expires_at,
        row.revoked_at,
        row.epoch or FIRST_EPOCH,
    )
