"""Identities: how an agent comes to the keys by which it proves who it is.

Nothing secret is injected into an agent.  An operator asks for an invitation, which is good once
and for minutes; whoever holds it registers the agent's public keys by it (RFC 7591).
"""

from base64 import urlsafe_b64encode
from typing import cast

from tenure.app.agents.views import get_agent_row, holdings_of, key_of
from tenure.app.operations.idempotency import WITHOUT_KEY, IdempotentRequest
from tenure.app.plane import Plane
from tenure.app.tenancy.audit import entry
from tenure.app.tenancy.tokens import require_owner
from tenure.core.agent import CONDUCT, AgentState
from tenure.core.errors import Conflict, ConflictCode
from tenure.core.roles import Caller, Role, require
from tenure.ports.identity import Authorization, Invitation, OAuthRefusal
from tenure.ports.store import Change


async def rotate(
    plane: Plane, caller: Caller, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> str:
    """Sign tokens with a new key from now on; the id of that key.  Older tokens stay valid.

    A request that is repeated after a crash rotates away from the key that signed when it came
    first: if that signs no more, nothing is left to do.
    """
    require_owner(caller)
    identity = cast(Authorization, plane.providers["identity"])
    told = entry(caller, "keys.rotate", target="identity", now=plane.store.now())
    change = Change("", (), (told,))
    if not idempotency.has_key:
        await plane.store.commit(change)
        return await identity.rotate()
    start = await idempotency.begin(plane, change, await identity.signing_key())
    return await identity.rotate(away_from=start.draft)


async def invite(
    plane: Plane, caller: Caller, name: str, *, idempotency: IdempotentRequest = WITHOUT_KEY
) -> Invitation:
    """A one-time token to register the agent's keys with; it ends an earlier one.

    A request that is repeated after a crash asks for the token that was chosen when it came first.
    """
    require(caller, Role.OPERATOR)
    row = await get_agent_row(plane, caller, name)
    uid, slot = str(row["uid"]), "identity"
    held = (await holdings_of(plane, caller.tenant, uid)).get(slot, [])
    if not held or not CONDUCT[AgentState(str(row["state"]))].serves:
        message = f"agent {name} is {row['state']!s}; only one that serves registers keys"
        raise Conflict(message, code=ConflictCode.WRONG_STATE, holder=uid)
    # The line comes first: after a crash between the two it tells of a right that nobody has seen.
    told = entry(caller, "agent.invite", target=uid, now=plane.store.now(), name=row["name"])
    change = Change("", (), (told,))
    identity, key = cast(Authorization, plane.providers[slot]), key_of(plane, row, slot, held[0])
    if idempotency.has_key:
        start = await idempotency.begin(plane, change, _new_nonce(plane))
        answer = await identity.invite(key, nonce=start.draft)
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
