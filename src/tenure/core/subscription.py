"""The kinds of subscriptions: how events reach a subscriber."""

import re
from enum import StrEnum
from typing import Final

from tenure.core.limits import NAME_PATTERN

NAME: Final = re.compile(NAME_PATTERN)
SUBJECT: Final = re.compile(r"(?=.{1,200}\Z)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


class SubscriptionKind(StrEnum):
    """How a subscriber receives events."""

    WEBHOOK = "webhook"
    """A signed request to its URL."""
    NATS = "nats"
    """A message on its subject."""
    PULL = "pull"
    """Nothing is sent: the subscriber reads `/v1/events`."""


ACKNOWLEDGED: Final = "tenure:acknowledged"
"""The signal that a required subscriber has acknowledged, or is no longer waited for."""
REACTION: Final = "reaction"
"""The kind of a destination that is a function of the plane itself; it has no subscription."""
