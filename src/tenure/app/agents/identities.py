"""Identities: how an agent registers the keys by which it proves who it is.

No secret is injected into an agent.  An operator requests an invitation, which is valid once and
for some minutes.  The holder of the invitation registers the agent's public keys (RFC 7591).
"""

from base64 import urlsafe_b64encode
from typing import cast

from tenure.app.agents.views import get_agent_row, holdings_of, key_of
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import audit_line
from tenure.app.tenancy.tokens import require_plane_admin
from tenure.core.agent import PERMISSIONS, AgentState
from tenure.core.errors import Conflict, ConflictCode
from tenure.core.roles import Caller, Role, require
from tenure.ports.identity import Authorization, Invitation, OAuthRefusal
from tenure.ports.store import Change


async def rotate(
    plane: Plane, caller: Caller, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> str:
    """Sign tokens with a new key from now on, and return its id; older tokens stay valid.

    The first attempt of a request stores the key that signs at that time.  An attempt after a crash
    rotates away from that key; if another key signs already, it changes nothing.
    """
    require_plane_admin(caller)
    identity = cast(Authorization, plane.providers["identity"])
    audit_row = audit_line(caller, "keys.rotate", target="identity", now=plane.store.now())
    change = Change("", (), (audit_row,))
    if not idempotency.has_key:
        await plane.store.commit(change)
        return await identity.rotate()
    start = await idempotency.begin(plane, change, await identity.signing_key())
    return await identity.rotate(away_from=start.chosen_value)


async def invite(
    plane: Plane, caller: Caller, name: str, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> Invitation:
    """Issue a one-time token that registers the agent's keys; an earlier token becomes void.

    An attempt of the same request after a crash issues the token that the first attempt chose.
    """
    require(caller, Role.OPERATOR)
    row = await get_agent_row(plane, caller, name)
    uid, slot = row.uid, "identity"
    held = (await holdings_of(plane, caller.tenant, uid)).get(slot, [])
    if not held or not PERMISSIONS[AgentState(row.state)].serves:
        message = f"agent {name} is {row.state}; only one that serves registers keys"
        raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=uid)
    # The audit row is written first: after a crash it may record a token that was never issued, but
    # no token is issued without its row.
    audit_row = audit_line(caller, "agent.invite", target=uid, now=plane.store.now(), name=row.name)
    change = Change("", (), (audit_row,))
    identity, key = cast(Authorization, plane.providers[slot]), key_of(plane, row, slot, held[0])
    if idempotency.has_key:
        start = await idempotency.begin(plane, change, _new_nonce(plane))
        answer = await identity.invite(key, nonce=start.chosen_value)
    else:
        await plane.store.commit(change)
        answer = await identity.invite(key)
    if isinstance(answer, OAuthRefusal):
        raise Conflict(
            f"agent {name}: {answer.sentence}", code=ConflictCode.WRONG_STATE, holder=uid
        )
    return answer


def _new_nonce(plane: Plane) -> str:
    return urlsafe_b64encode(plane.entropy.secret()).decode().rstrip("=")
