"""Ids: time-ordered ids of our own records, and derived keys of resources at providers.

A create derives the key of each resource before it calls the provider, and recovery and delete find
the resource again by that key.  Callers pass the time and the random bits.
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

    The text is derived from the parts, so it is known before the call and after a crash.  Each
    operation has a generation of its own, so a burned key is never used again.
    """

    text: str
    """At most 40 characters of [a-z0-9], a letter first: most services accept it as a name."""
    plane: str
    """The name of the control plane."""
    tenant: str
    agent: str
    """The uid of the agent, or the `agent` argument of `start`."""
    generation: int
    """The number of the operation among those of its agent."""
    slot: str
    """The kind of resource."""
    name: str
    """The name of the step."""


def resource_key(
    plane: str, *, tenant: str, agent: str, generation: int, slot: str, name: str, text: str = ""
) -> ResourceKey:
    """The key of a resource; its text is derived unless it is given.

    For a resource that exists, pass the stored text: a later release may derive it differently.
    """
    text = text or key_text(stem_of(plane, tenant, agent, generation), slot, name)
    return ResourceKey(text, plane, tenant, agent, generation, slot, name)


def stem_of(plane: str, tenant: str, agent: str, generation: int) -> str:
    """The part of a key that all resources of one operation share."""
    # Quoted, so that different parts never give the same text.
    parts = f"({plane!r}, {tenant!r}, {agent!r}, {generation})"
    return blake2b(parts.encode(), digest_size=10).hexdigest()


@cache
def _prefix_and_suffix(slot: str, name: str) -> tuple[str, str]:
    """The parts of a key text before and after the stem."""
    return _prefix(slot), blake2b(repr((slot, name)).encode(), digest_size=4).hexdigest()


def key_text(stem: str, slot: str, name: str) -> str:
    """The text of a key: a readable prefix, the stem, and a suffix that is unique for each step."""
    before, after = _prefix_and_suffix(slot, name)
    return f"{before}{stem}{after}"


@cache
def _prefix(slot: str) -> str:
    """The readable part of a key: at most 12 letters and digits of the slot, a letter first."""
    letters = "".join(c for c in slot if c.isascii() and c.isalnum()).lower()
    return letters[:12] if letters[:1].isalpha() else f"r{letters[:11]}"
