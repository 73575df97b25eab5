"""An edge of the ownership graph: from an agent to a thing that it owns or has granted.

The delete of an agent follows its edges (the cascade).
"""

from enum import StrEnum
from typing import Final


class EdgeKind(StrEnum):
    """The kind of thing at the end of an edge."""

    AGENT = "agent"
    GRANT = "grant"
    WEBHOOK = "webhook"
    CREDENTIAL = "credential"
    SESSION = "session"


REVOKE: Final = "revoke"
"""Value of `on_delete`: the thing is deleted with its owner."""
REASSIGN: Final = "reassign:"
"""Prefix of `on_delete`, before the uid of the agent that becomes the new owner."""
