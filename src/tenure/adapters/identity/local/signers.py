"""The signing keys of tokens: one signs, the next one is published already, older ones verify.

A key is published one rotation before it signs, so that cached key sets contain it already.  It
stays published until the last token that it signed has expired.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tenure.core.errors import Invalid, StoreError, Unavailable
from tenure.core.records.table import TableShape
from tenure.home.key_file import read_key
from tenure.ports.store import Change, Drop, Is, Put, Set
from tenure.sqlite.resource_file import ResourceFile

if TYPE_CHECKING:
    from tenure.adapters.identity.local import jose

SIGNER = TableShape(("kid",), ("state", "public", "sealed", "made_at", "until"))
NEXT, CURRENT, PREVIOUS = "NEXT", "CURRENT", "PREVIOUS"
TOKEN_SECONDS_MAX = 900.0
"""Maximum lifetime of a token; for so long a key still verifies after its last signature."""
SKEW_SECONDS = 10.0
"""Accepted difference to the clock of a client."""

T = TypeVar("T")


class _Signer(NamedTuple):
    state: str
    public: Mapping[str, str]
    key: "jose.Key"
    until: float | None


class _SigningKeys(NamedTuple):
    """The keys in memory: all by id, and the private one that signs."""

    by_kid: Mapping[str, _Signer]
    kid: str
    private: "jose.Key"


class Signers:
    """The signing keys, stored encrypted in the provider's file."""

    def __init__(
        self, resources: ResourceFile, queries: Mapping[str, str], *, sealing: Path
    ) -> None:
        self._resources = resources
        self._list = queries["list_signers"]
        self._sealing = sealing
        self._keys: _SigningKeys | None = None
        self._lock = asyncio.Lock()

    async def ready(self) -> _SigningKeys:
        """The keys; created at first use."""
        if self._keys is None:
            async with self._lock:
                if self._keys is None:
                    self._keys = await self._load()
        return self._keys

    async def list_public_keys(self) -> list[Mapping[str, str]]:
        """Every public key that may verify a token now or soon."""
        now = self._resources.now()
        signers = (await self.ready()).by_kid.values()
        return [one.public for one in signers if one.until is None or one.until > now]

    def verifier(self, keys: _SigningKeys, kid: object) -> "jose.Key | None":
        """The key that verifies tokens with this key id; None if it is unknown or expired."""
        one = keys.by_kid.get(kid) if isinstance(kid, str) else None
        if one is None or (one.until is not None and one.until <= self._resources.now()):
            return None
        return one.key

    async def signing_key(self) -> str:
        """The id of the key that signs now."""
        return (await self.ready()).kid

    async def rotate(self, *, away_from: str = "") -> str:
        """Sign with the next key and publish a new one after it; returns the id that signs."""
        await self.ready()
        async with self._lock:
            keys = self._keys or await self._load()
            if away_from and keys.kid != away_from:
                return keys.kid
            now = self._resources.now()
            chosen = next(k for k, one in keys.by_kid.items() if one.state == NEXT)
            expired = [k for k, one in keys.by_kid.items() if one.until is not None]
            expired = [k for k in expired if (keys.by_kid[k].until or 0.0) <= now]
            row = self._resources.find("signer", (chosen,))
            sealed = "" if row is None else str(row["sealed"])
            await _run_on_thread(lambda: self._check(chosen, sealed))
            until = now + TOKEN_SECONDS_MAX + SKEW_SECONDS
            change = Change(
                "",
                (
                    Is("signer", (keys.kid,), {"state": CURRENT}),
                    Is("signer", (chosen,), {"state": NEXT}),
                ),
                (
                    await self._new(NEXT),
                    Set("signer", (keys.kid,), {"state": PREVIOUS, "until": until}),
                    Set("signer", (chosen,), {"state": CURRENT}),
                    *(Drop("signer", (kid,)) for kid in expired),
                ),
            )
            self._keys = None  # read the file again, whatever the outcome of this change
            if await self._resources.commit(change) is not None:
                raise Unavailable(
                    "The signing keys were changed concurrently: nothing was rotated."
                )
            self._keys = await self._load()
            return chosen

    async def _load(self) -> _SigningKeys:
        rows = self._resources.read(self._list)
        if not rows:
            first, second = await self._new(CURRENT), await self._new(NEXT)
            await self._resources.commit(Change("", (), (first, second)))
            rows = self._resources.read(self._list)
        if not {CURRENT, NEXT} <= {row[1] for row in rows}:
            raise Unavailable("The signing keys are incomplete.")
        return await _run_on_thread(lambda: self._open(rows))

    async def _new(self, state: str) -> Put:
        new_signer = await _run_on_thread(self._make)
        now = self._resources.now()
        row = {"state": state, "public": new_signer.public, "sealed": new_signer.sealed}
        return Put("signer", (new_signer.kid,), {**row, "made_at": now, "until": None})

    def _make(self) -> "jose.NewSigner":
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        return jose.make_signer(read_key(self._sealing))

    def _check(self, kid: str, ciphertext: str) -> None:
        """Check that this key can be decrypted, before it has to sign."""
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        jose.unseal_signer(read_key(self._sealing), kid, ciphertext)

    def _open(self, rows: list[tuple[str, str, str, str, float | None]]) -> _SigningKeys:
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        sealing, by_kid = read_key(self._sealing), {}
        for kid, state, public, _, until in rows:
            public_key: dict[str, str] = json.loads(public)
            by_kid[kid] = _Signer(state, public_key, jose.load_key(public_key), until)
        kid, sealed = next((row[0], row[3]) for row in rows if row[1] == CURRENT)
        return _SigningKeys(by_kid, kid, jose.unseal_signer(sealing, kid, sealed))


async def _run_on_thread(work: Callable[[], T]) -> T:
    """Run slow work on a thread; a problem with the keys is Unavailable for the caller."""
    try:
        return await asyncio.to_thread(work)
    except (Invalid, StoreError, OSError) as error:
        raise Unavailable(f"The signing keys cannot be used: {error}") from None
