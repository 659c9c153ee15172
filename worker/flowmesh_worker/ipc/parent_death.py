"""Ends a process with its parent, even if the parent is killed."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
# Looked up at import: after a change of root directory the library is not found.
_prctl = getattr(ctypes.CDLL(None), "prctl", None)  # None where it is not Linux


def die_with_parent(parent: int | None) -> None:
    """Asks the kernel to kill this process when its parent dies; a change of user undoes this.

    Args:
        parent: the process id of the parent, to detect a death before this call; None if the
            parent is in another namespace.
    """
    if _prctl is not None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
