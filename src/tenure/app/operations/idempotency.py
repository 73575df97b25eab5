"""Idempotency keys: the same key and request make one thing for a day, an operation or another.

A key is a row of the change that makes the thing, so either both are there or neither is; of two
equal requests at the same time the second is refused by that row and finds the first.
"""

from hashlib import blake2b
from typing import NamedTuple, cast

from tenure.app.operations.handle import canonical
from tenure.app.plane import Plane
from tenure.core.errors import Conflict, ConflictCode, Invalid
from tenure.core.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX, IDEMPOTENCY_SECONDS
from tenure.ports.store import Change, Drop, Is, Put, Row


class Once(NamedTuple):
    """A request that makes one thing however often it comes."""

    scope: tuple[str, str, str, str]
    """Its tenant, principal, route and key; without a key nothing is kept."""
    fingerprint: str
    """The same for the same request."""
    of_operation: bool = False
    """The thing is an operation: whoever is refused is told which."""

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
            holder = str(known["operation"]) if self.of_operation else ""
            raise Conflict(message, code=ConflictCode.IDEMPOTENCY_MISMATCH, holder=holder)
        return str(known["operation"])

    def kept(self, holder: str, now: float) -> tuple[Put, ...]:
        """What goes into the change that makes the thing: its key, if it has one."""
        if not self.scope[-1]:
            return ()
        row: Row = {"operation": holder, "fingerprint": self.fingerprint, "at": now}
        return (Put("idempotency", self.scope, row),)


def once(
    tenant: str,
    principal: str,
    route: str,
    key: str,
    request: object,
    *,
    of_operation: bool = False,
) -> Once:
    """This request under this key of theirs; the same key may be used for another route."""
    refuse_odd_key(key)
    return Once((tenant, principal, route, key), fingerprint(request), of_operation)


def fingerprint(request: object) -> str:
    """The same for the same request, in whatever order its keys were given."""
    return blake2b(canonical(request), digest_size=16).hexdigest()


def refuse_odd_key(key: object) -> None:
    """Invalid if no key can be so; an empty one stands for none."""
    if not isinstance(key, str) or not (key.isprintable() and key.isascii()):
        message = f"an idempotency key is printable ASCII, not {key!a}"
        raise Invalid(message)
    if len(key) > IDEMPOTENCY_KEY_CHARACTERS_MAX:
        message = f"an idempotency key has at most {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters"
        raise Invalid(message)
