"""A finding: a problem that a reconciler has seen, and how sure it is."""

from enum import StrEnum
from hashlib import blake2b


class FindingKind(StrEnum):
    """How sure a reconciler is of a problem."""

    CONFIRMED = "CONFIRMED"
    """Seen more than once, or read from our own records; it was repaired if that is possible."""
    DRIFT = "DRIFT"
    """A provider reports something else than our records say."""
    UNVERIFIABLE = "UNVERIFIABLE"
    """It could not be checked."""


def finding_id(reconciler: str, finding_key: str) -> str:
    """The id of this reconciler's finding of this key: the same every time."""
    return blake2b(repr((reconciler, finding_key)).encode(), digest_size=16).hexdigest()
