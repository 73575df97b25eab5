"""Delivers events by webhook: a signed POST to the URL of a subscription."""

from tenure.adapters.bus.webhook.bus import WebhookBus
from tenure.adapters.bus.webhook.signing import signature_headers

__all__ = ["WebhookBus", "signature_headers"]
