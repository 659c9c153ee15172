"""Timestamps in the API server's format."""

from datetime import UTC, datetime


def timestamp(time_s: float) -> str:
    """Returns seconds since the epoch as RFC 3339 in UTC, to the second."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def unix_time(text: str) -> float:
    """Returns RFC 3339 in UTC, as the API server writes it, as seconds since the epoch."""
    return datetime.fromisoformat(text).timestamp()
