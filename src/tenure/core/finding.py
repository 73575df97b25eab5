"""A finding: something a reconciler has seen, how sure it is, and how often it was so."""

from enum import StrEnum
from hashlib import blake2b


class FindingKind(StrEnum):
    """How sure a reconciler is of what it has seen."""

    CONFIRMED = "CONFIRMED"
    """It is so: seen more than once, or read from our own records; acted on if it could be."""
    DRIFT = "DRIFT"
    """What a provider reports is not what we recorded."""
    UNVERIFIABLE = "UNVERIFIABLE"
    """Nobody can tell; that is not the same as clean."""


def finding_id(reconciler: str, subject: str) -> str:
    """The id of what this reconciler has to say of this subject: the same every time."""
    return blake2b(repr((reconciler, subject)).encode(), digest_size=16).hexdigest()
