"""A moment as a sentence tells it."""

from datetime import UTC, datetime


def instant(at: float) -> str:
    """To the second, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
