"""Identities: how an agent comes to the keys by which it proves who it is.

Nothing secret is injected into an agent.  An operator asks for an invitation, which is good once
and for minutes; whoever holds it registers the agent's public keys by it (RFC 7591).
"""

from typing import cast

from tenure.app.agent_views import find_agent, holdings_of
from tenure.app.audit import entry, require
from tenure.app.plane import Plane
from tenure.core.errors import Conflict
from tenure.core.ids import ResourceKey
from tenure.core.roles import Caller, Role
from tenure.ports.identity import Authorization, Invitation, Refusal
from tenure.ports.store import Change


async def invite(plane: Plane, caller: Caller, name: str) -> Invitation:
    """A one-time token to register the agent's keys with; it ends an earlier one."""
    require(caller, Role.OPERATOR)
    row = await find_agent(plane, caller, name)
    uid, slot = str(row["uid"]), "identity"
    answer: Invitation | Refusal | None = None
    for held in (await holdings_of(plane, caller.tenant, uid)).get(slot, [])[:1]:
        key = ResourceKey(
            held["key"], plane.id, caller.tenant, uid, held["generation"], slot, held["step"]
        )
        answer = await cast(Authorization, plane.providers[slot]).invite(key)
    if not isinstance(answer, Invitation):
        message = f"agent {name} is {row['state']!s} and has no identity that could be invited"
        raise Conflict(message, code="wrong_state", holder=uid)
    now = plane.store.now()
    told = entry(caller, "agent.invite", target=uid, now=now, name=row["name"])
    await plane.store.commit(Change("", (), (told,)))
    return answer
