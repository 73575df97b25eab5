"""Events by webhook: a signed POST to whatever URL a caller has named, and to nowhere else."""

from tenure.adapters.bus.webhook.bus import WebhookBus
from tenure.adapters.bus.webhook.signing import signed

__all__ = ["WebhookBus", "signed"]
