"""Detects the level of sandbox that users' code would get here, by a trial in a child process.

Called once by a worker and by the container of users' code, while they have a single thread.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from flowmesh_core.protocol.sandbox_levels import SandboxLevel
from flowmesh_worker.engines.code import landlock, sandbox


@dataclass(frozen=True, slots=True)
class CodeSandbox:
    """What a worker reports about its user code.

    Attributes:
        level: a ``SandboxLevel``; empty without user code.
        single_tenant: whether all of it runs as one user, so that it must be one tenant's.
    """

    level: str = ""
    single_tenant: bool = False


def detect_level(*, root: bool) -> SandboxLevel:
    """Returns the level.

    Args:
        root: whether calls begin as root.
    """
    if _succeeds(root):
        return SandboxLevel.USERNS
    return SandboxLevel.LANDLOCK if landlock.is_supported() else SandboxLevel.WEAK


def _succeeds(root: bool) -> bool:
    """Whether a process may move into namespaces with files of its own."""
    with tempfile.TemporaryDirectory(prefix="flowmesh-trial-") as jail:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                sandbox.enter_namespaces(Path(jail), 1, root=root)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
    return status == 0
