"""Idempotency keys: the same key and request have one effect for a day, and one answer.

The row of a key is part of the change that has the effect, so either both are stored or neither is.
Of two equal requests at the same time the second is refused by that row and finds the first.

A request can be answered again in two ways.  Its row names the operation or subscription that it
made, and the command answers with its present state, if it still exists (`find_named_id`, `rows`).
Or its row holds the first answer itself (`find_answer`, `commit`), sealed if a secret stands in it.
A request whose effect is more than one commit, or lies in a provider, stores its row first, without
an answer (`begin`): a request that is repeated after a crash goes on with what that row says.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec import json as msgspec_json
from msgspec.structs import replace

from tenure.app.operations.handle import canonical
from tenure.app.operations.plane import OperationsPlane
from tenure.core.errors import Conflict, ConflictCode, Defect, Invalid
from tenure.core.limits import IDEMPOTENCY_KEY_CHARACTERS_MAX, IDEMPOTENCY_SECONDS
from tenure.core.records.operation import IdempotencyRecord
from tenure.core.records.table import key_of
from tenure.ports.store import Change, CommitRefusal, Drop, Is, Put, Row, Set

Scope = tuple[str, str, str, str]
"""Tenant, principal, route and key."""
NO_SEAL = "this control plane has no place for secrets: send no Idempotency-Key here"


class StoredAnswer(NamedTuple):
    """The answer to the first request."""

    status: int
    body: bytes


class RequestStart(NamedTuple):
    """A request that was begun, by this attempt or by one before it."""

    chosen_value: str
    """A value that the first attempt chose, such as an id; every attempt uses it."""
    at: float
    is_repeated: bool = False
    """An attempt before this one began it, and may have done some of it."""


class RepeatedRequest(Exception):
    """An equal request under the same key was carried out meanwhile; its answer is stored."""


class _AnswerColumn(Struct, frozen=True):
    """The column `answer`: the body is JSON, or the sealed form of it."""

    status: int
    body: str
    sealed: bool = False


class IdempotentRequest:
    """One request under the key that its caller gave it; without a key nothing is stored."""

    __slots__ = (
        "_begun_at", "_is_stored", "encode_answer", "fingerprint", "has_secret", "names_operation",
        "scope", "status",
    )  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        fingerprint: str,
        *,
        names_operation: bool = False,
        has_secret: bool = False,
        status: int = 200,
    ) -> None:
        """A request whose answer has this status, and is sealed if it `has_secret`.

        If its row `names_operation`, the refusal of a mismatch names that operation.
        """
        self.scope = scope
        self.fingerprint = fingerprint
        self.names_operation = names_operation
        self.has_secret = has_secret
        self.status = status
        self.encode_answer: Callable[[Any], bytes] | None = None
        """Makes the body of the answer from the result of the command."""
        self._begun_at: float | None = None
        self._is_stored = False

    @property
    def has_key(self) -> bool:
        """Whether the caller gave a key."""
        return bool(self.scope[-1])

    # --------------------------------------------------- an operation or subscription is answered

    async def find_named_id(self, plane: OperationsPlane, now: float) -> str:
        """The id that the row of this key names; empty if the key is unused.

        Conflict `idempotency_mismatch` if it was used for another request.
        """
        known = await self._find(plane, now)
        return "" if known is None else known.stored_value

    def rows(self, named_id: str, now: float, *, answer: str | None = None) -> tuple[Put, ...]:
        """The rows to commit with the effect: that of the key, if there is one.

        `answer` is stored for requests after the named thing is gone; see `encode_stored_answer`.
        """
        return (self._row(now, stored_value=named_id, answer=answer),) if self.has_key else ()

    def encode_stored_answer(self, plane: OperationsPlane, body: bytes) -> str:
        """The answer with this body as its row holds it, sealed if it has a secret."""
        return self._answer(plane, body)

    # ----------------------------------------------------------------- the answer itself is stored

    async def find_answer(self, plane: OperationsPlane) -> StoredAnswer | None:
        """The answer that is stored under this key; None if there is none yet.

        Conflict `idempotency_mismatch` if the key was used for another request.
        """
        known = await self._find(plane, plane.store.now())
        if known is None or known.answer is None:
            return None
        record = msgspec_json.decode(known.answer, type=_AnswerColumn)
        if not record.sealed:
            return StoredAnswer(record.status, record.body.encode())
        try:
            body = plane.require_seal(NO_SEAL).decrypt(record.body, label=self._label)
        except Invalid:
            message = "the answer that is stored for this idempotency key cannot be opened: it was"
            raise Invalid(f"{message} sealed with a key that is lost; use a new one") from None
        return StoredAnswer(record.status, body)

    async def commit(
        self, plane: OperationsPlane, change: Change, result: object
    ) -> CommitRefusal | None:
        """Commit a change together with the answer to its request, which is made from `result`.

        RepeatedRequest if an equal request was carried out meanwhile: then nothing was written.
        """
        if not self.has_key:
            return await plane.store.commit(change)
        if self.encode_answer is None:
            raise Defect(f"{self.scope[2]}: `encode_answer` is not set")
        answer = self._answer(plane, self.encode_answer(result))
        row = self._row(plane.store.now(), answer=answer)
        refused = await plane.store.commit(replace(change, writes=(*change.writes, row)))
        if refused is None:
            self._is_stored = True
        elif refused.what.table == "idempotency":
            raise RepeatedRequest
        return refused

    async def begin(
        self, plane: OperationsPlane, change: Change, chosen_value: str = ""
    ) -> RequestStart:
        """Commit a change without guards that comes before the effect, once for each key.

        Returns the start of the first attempt, if this attempt repeats it.
        RepeatedRequest if an earlier attempt has been answered.
        """
        now = plane.store.now()
        if not self.has_key:
            if change.writes:
                await plane.store.commit(change)
            return RequestStart(chosen_value, now)
        stored_value = (
            plane.require_seal(NO_SEAL).encrypt(chosen_value.encode(), label=self._label)
            if self.has_secret
            else chosen_value
        )
        row = self._row(now, stored_value=stored_value)
        if await plane.store.commit(replace(change, writes=(*change.writes, row))) is None:
            self._begun_at = now
            return RequestStart(chosen_value, now)
        known = await self._find(plane, now)
        if known is None or known.answer is not None:
            raise RepeatedRequest
        self._begun_at = known.at
        first = known.stored_value
        if self.has_secret:
            first = plane.require_seal(NO_SEAL).decrypt(first, label=self._label).decode()
        return RequestStart(first, self._begun_at, is_repeated=True)

    async def finish(self, plane: OperationsPlane, body: bytes, *, status: int = 0) -> None:
        """Store the answer of a request whose command has not stored it.

        RepeatedRequest if an equal request was answered meanwhile: its answer counts.
        """
        if not self.has_key or self._is_stored:
            return
        answer, now = self._answer(plane, body, status), plane.store.now()
        if self._begun_at is None:
            change = Change("", (), (self._row(now, answer=answer),))
            if await plane.store.commit(change) is None:
                self._is_stored = True
                return
            known = await self._find(plane, now)
            if known is None or known.answer is not None:
                raise RepeatedRequest
            # An earlier attempt has begun and has carried out the whole request.
            self._begun_at = known.at
        guard = Is("idempotency", self.scope, {"at": self._begun_at, "answer": None})
        write = Set("idempotency", self.scope, {"answer": answer})
        if await plane.store.commit(Change("", (guard,), (write,))) is not None:
            raise RepeatedRequest
        self._is_stored = True

    # --------------------------------------------------------------------------------------- inner

    async def _find(self, plane: OperationsPlane, now: float) -> IdempotencyRecord | None:
        """The row of this key, unless its day is over."""
        known = await plane.store.find(IdempotencyRecord, self.scope) if self.has_key else None
        if known is None:
            return None
        if known.at < now - IDEMPOTENCY_SECONDS:
            guard = key_is_unchanged(known)
            await plane.store.commit(Change("", (guard,), (drop_key(known),)))
            return None
        if known.fingerprint != self.fingerprint:
            message = "this idempotency key was used for another request; use a new key"
            named_id = known.stored_value if self.names_operation else ""
            raise Conflict(message, code=ConflictCode.IDEMPOTENCY_MISMATCH, holder=named_id)
        return known

    def _row(self, now: float, *, stored_value: str = "", answer: str | None = None) -> Put:
        row: Row = {"operation": stored_value, "fingerprint": self.fingerprint, "at": now}
        if answer is not None:
            row["answer"] = answer
        return Put("idempotency", self.scope, row)

    def _answer(self, plane: OperationsPlane, body: bytes, status: int = 0) -> str:
        text = body.decode()
        if self.has_secret:
            text = plane.require_seal(NO_SEAL).encrypt(body, label=self._label)
        record = _AnswerColumn(status or self.status, text, self.has_secret)
        return msgspec_json.encode(record).decode()

    @property
    def _label(self) -> str:
        """The label of the seal: an answer that is copied to another row cannot be opened."""
        return f"idempotency/{fingerprint(self.scope)}"


def drop_key(row: IdempotencyRecord) -> Drop:
    """The day of this key is over: it may be used for another request."""
    return Drop("idempotency", key_of(row))


def key_is_unchanged(row: IdempotencyRecord) -> Is:
    """Guard: the key has not been used again since its row was read."""
    return Is("idempotency", key_of(row), {"at": row.at})


WITHOUT_KEY = IdempotentRequest(("", "", "", ""), "")
"""A request whose caller gave no key: it has its effect each time."""


def request_under_key(
    tenant: str,
    principal: str,
    route: str,
    key: str,
    request: object,
    *,
    names_operation: bool = False,
    has_secret: bool = False,
) -> IdempotentRequest:
    """The request under this key of the principal; each route has its own keys."""
    validate_key(key)
    scope = (tenant, principal, route, key)
    return IdempotentRequest(
        scope, fingerprint(request), names_operation=names_operation, has_secret=has_secret
    )


def fingerprint(request: object) -> str:
    """A hash that is the same for equal requests, whatever the order of their fields."""
    try:
        return blake2b(canonical(request), digest_size=16).hexdigest()
    except (TypeError, ValueError) as error:
        raise Invalid(f"a request with an idempotency key is plain data: {error}") from None


def validate_key(key: object) -> None:
    """Check an idempotency key; Invalid if it cannot be one.  An empty one means no key."""
    if not isinstance(key, str) or not (key.isprintable() and key.isascii()):
        message = f"an idempotency key is printable ASCII, not {key!a}"
        raise Invalid(message)
    if len(key) > IDEMPOTENCY_KEY_CHARACTERS_MAX:
        message = f"an idempotency key has at most {IDEMPOTENCY_KEY_CHARACTERS_MAX} characters"
        raise Invalid(message)
