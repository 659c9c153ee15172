"""How well a worker separates users' code, as levels that workers report and pools require."""

from enum import StrEnum


class SandboxLevel(StrEnum):
    """What separates a call of users' code from the machine and from other calls.

    ``userns`` is also the level of a worker that creates namespaces as root.
    """

    WEAK = "weak"
    LANDLOCK = "landlock"
    USERNS = "userns"


_ORDER = tuple(SandboxLevel)
"""The weakest first."""


def suffices(level: str, minimum: str) -> bool:
    """Whether a level is at least the minimum; an unknown level counts as the weakest.

    Args:
        level: as a worker reports it.
        minimum: as its pool requires it; empty is any.
    """
    return _rank(level) >= _rank(minimum)


def _rank(level: str) -> int:
    return _ORDER.index(SandboxLevel(level)) if level in _ORDER else 0
