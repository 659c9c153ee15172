"""Counts function calls: how much work something is, whatever else the machine does."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def counted_calls() -> Iterator[Callable[[], int]]:
    """Yields what returns the calls of this thread since the beginning, of C functions too."""
    count = 0

    def count_one(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count_one)
    try:
        yield lambda: count
    finally:
        sys.setprofile(before)


def calls_of(work: Callable[[], object]) -> int:
    """Returns how many functions a piece of work calls."""
    with counted_calls() as count:
        work()
    return count()
