"""Tokens: how a caller says who it is.  The store keeps their hashes, never the tokens.

The tenant of everything a caller asks for comes from its token and from nowhere else.  Tokens
themselves have one rule: an admin hands out, lists and revokes those of its own tenant, and an
admin of the plane's own tenant those of any; to others they are as absent as what never was.
"""

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple

from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.pages import every
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import entry
from tenure.core.agent import NAME
from tenure.core.errors import Forbidden, Invalid, NotFound, Unauthenticated
from tenure.core.ids import uuid7
from tenure.core.limits import IDENTIFIER_CHARACTERS_MAX
from tenure.core.records import TokenRecord
from tenure.core.roles import Caller, Role, require
from tenure.ports.store import Change, Is, Put, Row, Set

PREFIX = "tenure_"
TENANT = "default"
STARTER = Caller(TENANT, "tenure up", Role.ADMIN)
"""Whoever starts the plane, as the audit log has it."""
FIRST = 1
"""The epoch of a token that was issued before there were epochs."""
LENGTH_MAX = 128
"""Characters of a token; a longer one is not even hashed."""


class TokenView(NamedTuple):
    """A token as it is shown: all but the token itself."""

    id: str
    tenant: str
    principal: str
    role: Role
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    epoch: int = FIRST
    """The plane's epoch in which it was issued, and in which alone it is good."""


async def authenticate(plane: Plane, token: str) -> Caller:
    """Who carries this token; Unauthenticated if nobody does, or not any more.

    It is found by its hash, so no comparison tells how much of a guess was right.
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
    """A new token, which is shown here and, sealed, to whoever repeats the request."""
    tenant = _tenant(caller, tenant)
    if not NAME.fullmatch(tenant):
        raise Invalid("tenant: a lower-case letter, then such letters, digits and -; 63 at most")
    if not principal.isprintable() or not 0 < len(principal) <= IDENTIFIER_CHARACTERS_MAX:
        most = IDENTIFIER_CHARACTERS_MAX
        raise Invalid(f"principal: printable text of at most {most} characters")
    if seconds is not None and not seconds > 0:
        raise Invalid("seconds: a token lives for more than no time")
    now = plane.store.now()
    token = PREFIX + urlsafe_b64encode(plane.entropy.secret()).decode().rstrip("=")
    expires_at = None if seconds is None else now + seconds
    name = uuid7(now, plane.entropy.bits())
    view = TokenView(name, tenant, principal, role, now, expires_at, None, plane.pause.epoch)
    made = view, token
    await idempotency.commit(plane, Change("", (), _created(caller, *made)), made)
    return made


async def begin(plane: Plane, token: str) -> None:
    """Let whoever starts the plane in as its admin; the token was made for this store before."""
    now = plane.store.now()
    name = uuid7(now, plane.entropy.bits())
    view = TokenView(name, TENANT, "admin", Role.ADMIN, now, None, None, plane.pause.epoch)
    await plane.store.commit(Change("", (), _created(STARTER, view, token)))


async def list_tokens(plane: Plane, caller: Caller, *, tenant: str = "") -> Sequence[TokenView]:
    """The tokens of a tenant, by default the caller's, also those that are no good any more."""
    tenant = _tenant(caller, tenant)
    found = [_view(row) async for row in every(plane.store, TokenRecord, {"tenant": tenant})]
    return sorted(found, key=lambda view: view.id)


async def revoke_token(
    plane: Plane,
    caller: Caller,
    token_id: str,
    *,
    idempotency: IdempotentRequest = WITHOUT_KEY,
) -> TokenView:
    """No good from now on; twice succeeds, and the first time stands."""
    require(caller, Role.ADMIN)
    named: Row = {"id": token_id}
    if caller.tenant != TENANT:
        named["tenant"] = caller.tenant
    rows = await plane.store.list_rows(TokenRecord, named, limit=1)
    if not rows:
        raise NotFound(f"there is no token {token_id}")
    if rows[0].revoked_at is not None:
        return _view(rows[0])
    first = Is("token", (rows[0].hash,), {"revoked_at": None})
    now = plane.store.now()
    told = entry(caller, "token.revoke", target=token_id, now=now)
    write = Set("token", (rows[0].hash,), {"revoked_at": now})
    view = _view(rows[0]._replace(revoked_at=now))
    change = Change("", (first,), (write, told))
    if await idempotency.commit(plane, change, view) is not None:  # someone was faster
        return await revoke_token(plane, caller, token_id, idempotency=idempotency)
    return view


def require_owner(caller: Caller) -> None:
    """Forbidden unless an admin of the plane's own tenant asks: it is about all tenants."""
    require(caller, Role.ADMIN)
    if caller.tenant != TENANT:
        raise Forbidden(f"this needs an admin of the tenant {TENANT}")


def _is_current(plane: Plane, row: TokenRecord) -> bool:
    """Whether a token was issued in the epoch that the plane is in."""
    return (row.epoch or FIRST) == plane.pause.epoch


def _tenant(caller: Caller, tenant: str) -> str:
    """The tenant whose tokens are meant; NotFound if they are not for this caller."""
    require(caller, Role.ADMIN)
    tenant = tenant or caller.tenant
    if caller.tenant not in {tenant, TENANT}:
        raise NotFound(f"there is no tenant {tenant}")
    return tenant


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _created(caller: Caller, view: TokenView, token: str) -> tuple[Put, Put]:
    """The token's row, and the line that tells who made it."""
    whose = {"principal": view.principal, "role": view.role, "tenant": view.tenant}
    told = entry(caller, "token.create", target=view.id, now=view.created_at, **whose)
    row: Row = {
        "id": view.id,
        "tenant": view.tenant,
        "principal": view.principal,
        "role": view.role,
        "created_at": view.created_at,
        "expires_at": view.expires_at,
        "epoch": view.epoch,
    }
    return Put("token", (_hash(token),), row), told


def _view(row: TokenRecord) -> TokenView:
    return TokenView(
        row.id,
        row.tenant,
        str(row.principal),
        Role(row.role),
        row.created_at,
        row.expires_at,
        row.revoked_at,
        row.epoch or FIRST,
    )
