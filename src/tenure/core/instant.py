"""A moment as a sentence tells it."""

from datetime import UTC, datetime


def in_utc(at: float) -> str:
    """To the second, with its zone."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
