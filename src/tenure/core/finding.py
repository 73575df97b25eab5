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


def finding_id(reconciler: str, subject: str) -> str:
    """The id of this reconciler's finding about this subject: the same every time."""
    return blake2b(repr((reconciler, subject)).encode(), digest_size=16).hexdigest()
