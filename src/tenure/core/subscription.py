"""A subscription: in which ways events reach whoever wants to hear of them."""

import re
from enum import StrEnum
from typing import Final

from tenure.core.limits import NAME_PATTERN

NAME: Final = re.compile(NAME_PATTERN)
SUBJECT: Final = re.compile(r"(?=.{1,200}\Z)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


class SubscriptionKind(StrEnum):
    """How it is told."""

    WEBHOOK = "webhook"
    """A signed request to its URL."""
    NATS = "nats"
    """A message on its subject."""
    PULL = "pull"
    """Not at all: it reads `/v1/events`."""


REACTION: Final = "reaction"
"""The kind of a destination that is a function of the plane itself; it has no subscription."""
