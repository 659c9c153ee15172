"""Confines child processes of the control plane: no secrets, and bounded memory.

The control plane starts children with :func:`child_environment`; each child calls :func:`confine`
once its libraries are loaded, before it reads anything that a tenant wrote.
"""

import ctypes
import os
import resource
import signal
from pathlib import Path

_INHERITED = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV")
_FIRST_TO_BE_KILLED = "1000"
_SET_PDEATHSIG = 1


def child_environment() -> dict[str, str]:
    """Returns the environment variables of a child: no token, key or credential."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    # One arena of the system's allocator: memory that more arenas reserve would count against the
    # limit.
    return {**inherited, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}


def confine(parent: int, memory_bytes: int) -> None:
    """Bounds this process's memory irrevocably, and makes it end with its parent.

    Args:
        parent: the process id of the control plane.
        memory_bytes: what it may use beyond its present size.
    """
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_BE_KILLED)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # It writes to a pipe only, so it may not write to files.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def limit_processor_time(seconds: float) -> None:
    """Ends this process with SIGXCPU when it has worked for so much longer; rounded up."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit_s = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, resource.RLIM_INFINITY))
