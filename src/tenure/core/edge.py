"""An edge of the ownership graph: what an agent owns or has granted, and what becomes of it."""

from enum import StrEnum
from typing import Final


class EdgeKind(StrEnum):
    """What stands at the end of an edge."""

    AGENT = "agent"
    GRANT = "grant"
    WEBHOOK = "webhook"
    CREDENTIAL = "credential"
    SESSION = "session"


REVOKE: Final = "revoke"
"""What it ends at goes with its owner."""
REASSIGN: Final = "reassign:"
"""Before an agent's uid: that one owns it from then on."""
