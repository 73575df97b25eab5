"""Idempotency keys of what is no operation: the same key and request make one thing for a day.

A key is a row of the change that makes the thing, so either both are there or neither is; of two
equal requests at the same time the second is refused by that row and finds the first.  Operations
keep their keys in the same table by themselves.
"""

from hashlib import blake2b
from typing import NamedTuple, cast

from tenure.app.live import canonical
from tenure.app.plane import Plane
from tenure.core.errors import Conflict, Invalid
from tenure.core.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX, IDEMPOTENCY_SECONDS
from tenure.core.roles import Caller
from tenure.ports.store import Change, Drop, Is, Put, Row


class Once(NamedTuple):
    """A request that makes one thing however often it comes."""

    scope: tuple[str, str, str, str]
    """Its tenant, principal, route and key; without a key nothing is kept."""
    fingerprint: str
    """The same for the same request."""

    async def holder(self, plane: Plane, now: float) -> str:
        """What the key was given for, while it is kept; empty if nothing.

        Conflict `idempotency_mismatch` if that was another request.
        """
        known = await plane.store.find("idempotency", self.scope) if self.scope[-1] else None
        if known is None:
            return ""
        if cast(float, known["at"]) < now - IDEMPOTENCY_SECONDS:
            guard = Is("idempotency", self.scope, {"at": known["at"]})
            await plane.store.commit(Change("", (guard,), (Drop("idempotency", self.scope),)))
            return ""
        if known["fingerprint"] != self.fingerprint:
            message = "this idempotency key was used for another request; use a new key"
            raise Conflict(message, code="idempotency_mismatch")
        return str(known["operation"])

    def kept(self, holder: str, now: float) -> tuple[Put, ...]:
        """What goes into the change that makes the thing: its key, if it has one."""
        if not self.scope[-1]:
            return ()
        row: Row = {"operation": holder, "fingerprint": self.fingerprint, "at": now}
        return (Put("idempotency", self.scope, row),)


def once(caller: Caller, route: str, key: str, request: object) -> Once:
    """This request under this key of the caller's; the same key may be used for another route."""
    refuse_odd_key(key)
    told = blake2b(canonical(request), digest_size=16).hexdigest()
    return Once((caller.tenant, caller.principal, route, key), told)


def refuse_odd_key(key: object) -> None:
    """Invalid if no key can be so; an empty one stands for none."""
    if not isinstance(key, str) or not (key.isprintable() and key.isascii()):
        message = f"an idempotency key is printable ASCII, not {key!a}"
        raise Invalid(message)
    if len(key) > IDEMPOTENCY_KEY_CHARACTERS_MAX:
        message = f"an idempotency key has at most {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters"
        raise Invalid(message)
