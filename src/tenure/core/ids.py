"""Every id: time-ordered ones for what we make, derived ones for what providers hold.

Nothing here draws randomness or asks the time; both are handed in.
"""

from functools import cache
from hashlib import blake2b
from typing import NamedTuple


def uuid7(now: float, bits: int) -> str:
    """A UUIDv7 as 32 hex digits.

    It sorts by `now` down to a quarter of a microsecond; `bits` are 62 random ones.
    """
    ticks = int(now * 4_096_000)
    upper = (ticks >> 12 & 0xFFFF_FFFF_FFFF) << 16 | 0x7000 | ticks & 0xFFF
    lower = 0x8000_0000_0000_0000 | bits & 0x3FFF_FFFF_FFFF_FFFF
    return (upper << 64 | lower).to_bytes(16).hex()


class ResourceKey(NamedTuple):
    """The address of one resource at its provider: `text` on the wire, the parts as labels.

    The text is derived from the parts, so that it is known before the call and after a crash; a
    generation belongs to one operation, so that a burned key is never used again.
    """

    text: str
    """At most 40 characters of [a-z0-9], a letter first: fit for the names of most services."""
    plane: str
    """The name of the control plane."""
    tenant: str
    agent: str
    """The uid of the agent, or what `start` was given."""
    generation: int
    """The number of the operation among those of its agent."""
    slot: str
    """The kind of resource."""
    name: str
    """The name of the step."""


def resource_key(
    plane: str, *, tenant: str, agent: str, generation: int, slot: str, name: str, text: str = ""
) -> ResourceKey:
    """The key of a resource; its text is at most 40 characters of [a-z0-9], a letter first.

    Of what was made before, the text is given as it was kept: it stays though the rule changes.
    """
    text = text or key_text(stem_of(plane, tenant, agent, generation), slot, name)
    return ResourceKey(text, plane, tenant, agent, generation, slot, name)


def stem_of(plane: str, tenant: str, agent: str, generation: int) -> str:
    """The part of a key that all resources of one operation share."""
    parts = f"({plane!r}, {tenant!r}, {agent!r}, {generation})"  # quoted: never ambiguous
    return blake2b(parts.encode(), digest_size=10).hexdigest()


@cache
def _ends(slot: str, name: str) -> tuple[str, str]:
    """What stands before and after the stem."""
    return _prefix(slot), blake2b(repr((slot, name)).encode(), digest_size=4).hexdigest()


def key_text(stem: str, slot: str, name: str) -> str:
    """The text of a key: the slot as a person sees it, the stem, and what tells siblings apart."""
    before, after = _ends(slot, name)
    return f"{before}{stem}{after}"


@cache
def _prefix(slot: str) -> str:
    """What a person sees of the slot in a key: at most 12 letters and digits, a letter first."""
    seen = "".join(c for c in slot if c.isascii() and c.isalnum()).lower()
    return seen[:12] if seen[:1].isalpha() else f"r{seen[:11]}"
