"""Formats points in time for messages."""

from datetime import UTC, datetime


def in_utc(at: float) -> str:
    """The time to the second, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
