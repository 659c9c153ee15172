"""Bounds how much memory a query adds to its process.

DuckDB's own limit counts its buffers, not the texts and lists that functions make: ``repeat('a',
2000000000)`` took 5.8 GB beside a limit of 512 MiB. So the kernel bounds the process's anonymous
memory while a query runs; an allocation beyond that fails, and the query with it.
"""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MIB = 1 << 20
_BESIDE_MIB = 256
_lock = threading.Lock()
_bounds: list[int] = []
_soft, _hard = resource.getrlimit(resource.RLIMIT_DATA)


def growth_bytes(memory_mib: int) -> int:
    """Returns what a query may add: a result is held twice, in DuckDB and as an Arrow table."""
    return (2 * memory_mib + _BESIDE_MIB) * _MIB


@contextmanager
def bounded_growth(limit_bytes: int) -> Iterator[None]:
    """Bounds the process's anonymous memory during a block.

    The largest bound counts where several blocks overlap.

    Args:
        limit_bytes: what all threads together may add to the present size.
    """
    bound = _anonymous_bytes() + limit_bytes
    with _lock:
        _bounds.append(bound)
        _apply()
    try:
        yield
    finally:
        with _lock:
            _bounds.remove(bound)
            _apply()


def _apply() -> None:
    soft = max(_bounds) if _bounds else _soft
    if _hard != resource.RLIM_INFINITY:
        soft = min(soft, _hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, _hard))


def _anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    raise OSError("/proc/self/status has no VmData")
