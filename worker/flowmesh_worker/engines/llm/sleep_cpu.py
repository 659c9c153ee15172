"""Sleep of a vLLM engine on a CPU: it frees its key-value cache and keeps its weights.

vLLM's sleep mode (0.27.1) is for GPUs; its worker on a CPU prints a warning and does nothing. There
the memory of the host is that of the device, so the weights have nowhere to go, and what can be
freed is the cache. Its pages are given back to the kernel and its addresses stay, so that nothing
which holds a tensor need change; a page is zero when it is used again, as it was at the start.
vLLM's engine core has forgotten the cached prefixes before it calls this, and sends no step until
it has called ``wake_up``.

``use_on_cpu`` replaces vLLM's methods before the engine's process is forked.
"""

import ctypes
import mmap
from collections.abc import Iterator
from typing import Any

import torch
from vllm.v1.worker.cpu_worker import CPUWorker

_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def sleep(self: Any, level: int = 1) -> None:
    """Gives the pages of the key-value cache back, in place of ``CPUWorker.sleep``.

    Args:
        self: vLLM's worker.
        level: vLLM's; the weights stay at each of them.

    Raises:
        OSError: the kernel does not take them, such as huge pages.
    """
    del level
    for cache in _caches(self.model_runner.kv_caches):
        discard(cache)
    _libc.malloc_trim(0)


def wake_up(self: Any, tags: list[str] | None = None) -> None:
    """Does nothing, in place of ``CPUWorker.wake_up``: pages come back as they are written."""
    del self, tags


def discard(cache: torch.Tensor) -> None:
    """Gives the whole pages of a tensor's memory back to the kernel; they read as zeros.

    Raises:
        OSError: the kernel does not take them.
    """
    storage = cache.untyped_storage()
    page, begin = mmap.PAGESIZE, storage.data_ptr()
    first, end = -(-begin // page) * page, (begin + storage.nbytes()) // page * page
    if end > first and _libc.madvise(first, end - first, mmap.MADV_DONTNEED) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"the memory of the key-value cache cannot be freed ({number})")


def use_on_cpu() -> None:
    """Has engines of this process, and of those forked from it, use these methods."""
    CPUWorker.sleep = sleep
    CPUWorker.wake_up = wake_up


def _caches(found: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of vLLM's list, in which a layer may have several."""
    if isinstance(found, torch.Tensor):
        yield found
    else:
        for one in found:
            yield from _caches(one)
