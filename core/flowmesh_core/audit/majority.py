"""Which of three workers gave another result than the other two."""

from collections.abc import Mapping
from enum import StrEnum


class OddOne(StrEnum):
    """The worker that disagrees with two others."""

    PUBLISHER = "the worker that published the result"
    SECOND = "the worker that made it again first"
    NONE = "no two of the three agree"


def odd_one(
    published: Mapping[str, str], second: Mapping[str, str], third: Mapping[str, str]
) -> OddOne:
    """Returns who disagrees, given the digests of the outputs by port of each.

    Args:
        published: what was published.
        second: what another worker gave, which differs from it.
        third: what a third worker gave.
    """
    if third == published:
        return OddOne.SECOND
    return OddOne.PUBLISHER if third == second else OddOne.NONE
