"""The bound on the memory that one request or message may cost the control plane."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

GROWTH_MAX = 128 << 20
"""Bytes."""


@contextmanager
def bounded_growth() -> Iterator[None]:
    """Fails where this process takes more memory than the bound, at any time in the block."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= GROWTH_MAX
