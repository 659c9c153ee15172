"""The priority of a request among those of its own namespace at its own service.

Routers read it from the header ``X-Flowmesh-Priority``; hubs order waiting calls by it.
"""

from enum import IntEnum


class RequestPriority(IntEnum):
    """Higher ones first."""

    LOW = -1
    NORMAL = 0
    HIGH = 1

    @classmethod
    def nearest(cls, value: int) -> "RequestPriority":
        """Returns the priority of a number in a frame."""
        return cls(max(cls.LOW, min(cls.HIGH, value)))
