"""The keys that tokens are signed with: one signs, one is published to be next, older ones verify.

A key is published a whole rotation before it signs, so that whoever keeps a copy of the key set
knows it already; and it stays published until the last token that it signed has expired.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tenure.adapters.identity.local import seal
from tenure.core.errors import Invalid, StoreError, Unavailable
from tenure.ports.store import Change, Drop, Is, Put, Set, Shape
from tenure.sqlite.holdings import Holdings

if TYPE_CHECKING:
    from tenure.adapters.identity.local import jose

SIGNER = Shape(("kid",), ("state", "public", "sealed", "made_at", "until"))
NEXT, CURRENT, PREVIOUS = "NEXT", "CURRENT", "PREVIOUS"
TOKEN_SECONDS_MAX = 900.0
"""The longest life of a token, and so the time a key that signs no more must still verify."""
SKEW_SECONDS = 10.0
"""How far another's clock may be off."""

T = TypeVar("T")


class _Signer(NamedTuple):
    state: str
    public: Mapping[str, str]
    key: "jose.Key"
    until: float | None


class _Loaded(NamedTuple):
    """The keys in memory: all by id, and the private one that signs."""

    by_kid: Mapping[str, _Signer]
    kid: str
    private: "jose.Key"


class Signers:
    """Keeps the signing keys in the provider's own file, sealed."""

    def __init__(self, holdings: Holdings, queries: Mapping[str, str], *, sealing: Path) -> None:
        self._holdings = holdings
        self._list = queries["list_signers"]
        self._sealing = sealing
        self._loaded: _Loaded | None = None
        self._lock = asyncio.Lock()

    async def ready(self) -> _Loaded:
        """The keys; made when they are first asked for."""
        if self._loaded is None:
            async with self._lock:
                if self._loaded is None:
                    self._loaded = await self._load()
        return self._loaded

    async def published(self) -> list[Mapping[str, str]]:
        """Every public key that may verify a token now or soon."""
        now = self._holdings.now()
        signers = (await self.ready()).by_kid.values()
        return [one.public for one in signers if one.until is None or one.until > now]

    def verifier(self, loaded: _Loaded, kid: object) -> "jose.Key | None":
        """The key that checks tokens with this key id; None if none does, or not any more."""
        one = loaded.by_kid.get(kid) if isinstance(kid, str) else None
        if one is None or (one.until is not None and one.until <= self._holdings.now()):
            return None
        return one.key

    async def signing_key(self) -> str:
        """The id of the key that signs now."""
        return (await self.ready()).kid

    async def rotate(self, *, away_from: str = "") -> str:
        """Sign with the next key from now on, and publish a new one after it; the id that signs."""
        await self.ready()
        async with self._lock:
            loaded = self._loaded or await self._load()
            if away_from and loaded.kid != away_from:
                return loaded.kid
            now = self._holdings.now()
            chosen = next(k for k, one in loaded.by_kid.items() if one.state == NEXT)
            over = [k for k, one in loaded.by_kid.items() if one.until is not None]
            over = [k for k in over if (loaded.by_kid[k].until or 0.0) <= now]
            row = self._holdings.find("signer", (chosen,))
            sealed = "" if row is None else str(row["sealed"])
            await _off_the_loop(lambda: self._check(chosen, sealed))
            until = now + TOKEN_SECONDS_MAX + SKEW_SECONDS
            change = Change(
                "",
                (
                    Is("signer", (loaded.kid,), {"state": CURRENT}),
                    Is("signer", (chosen,), {"state": NEXT}),
                ),
                (
                    await self._new(NEXT),
                    Set("signer", (loaded.kid,), {"state": PREVIOUS, "until": until}),
                    Set("signer", (chosen,), {"state": CURRENT}),
                    *(Drop("signer", (kid,)) for kid in over),
                ),
            )
            self._loaded = None  # whatever becomes of this change, the file knows
            if await self._holdings.commit(change) is not None:
                raise Unavailable("The signing keys were changed by another: nothing was rotated.")
            self._loaded = await self._load()
            return chosen

    async def _load(self) -> _Loaded:
        rows = self._holdings.read(self._list)
        if not rows:
            first, second = await self._new(CURRENT), await self._new(NEXT)
            await self._holdings.commit(Change("", (), (first, second)))
            rows = self._holdings.read(self._list)
        if not {CURRENT, NEXT} <= {row[1] for row in rows}:
            raise Unavailable("The signing keys are not whole.")
        return await _off_the_loop(lambda: self._open(rows))

    async def _new(self, state: str) -> Put:
        made = await _off_the_loop(self._make)
        now = self._holdings.now()
        row = {"state": state, "public": made.public, "sealed": made.sealed}
        return Put("signer", (made.kid,), {**row, "made_at": now, "until": None})

    def _make(self) -> "jose.NewSigner":
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        return jose.make_signer(seal.read_key(self._sealing))

    def _check(self, kid: str, sealed: str) -> None:
        """That this key can sign, before it is the one that must."""
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        jose.unseal_signer(seal.read_key(self._sealing), kid, sealed)

    def _open(self, rows: list[tuple[str, str, str, str, float | None]]) -> _Loaded:
        from tenure.adapters.identity.local import jose  # noqa: PLC0415 (slow: at first use)

        sealing, by_kid = seal.read_key(self._sealing), {}
        for kid, state, public, _, until in rows:
            shown: dict[str, str] = json.loads(public)
            by_kid[kid] = _Signer(state, shown, jose.load_key(shown), until)
        kid, sealed = next((row[0], row[3]) for row in rows if row[1] == CURRENT)
        return _Loaded(by_kid, kid, jose.unseal_signer(sealing, kid, sealed))


async def _off_the_loop(work: Callable[[], T]) -> T:
    """Run what is slow in a thread; what is wrong with the keys is no fault of the caller's."""
    try:
        return await asyncio.to_thread(work)
    except (Invalid, StoreError, OSError) as error:
        raise Unavailable(f"The signing keys cannot be used: {error}") from None
