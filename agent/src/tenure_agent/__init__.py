"""For agents, and for systems that follow Tenure's events; only the standard library."""

from tenure_agent.inbox import Inbox, Outcome
from tenure_agent.webhook import InvalidWebhook, verify

__all__ = ["Inbox", "InvalidWebhook", "Outcome", "verify"]
