"""For whatever runs beside Tenure; the standard library alone."""

from tenure_agent.inbox import Inbox, Outcome
from tenure_agent.webhook import Forged, verify

__all__ = ["Forged", "Inbox", "Outcome", "verify"]
