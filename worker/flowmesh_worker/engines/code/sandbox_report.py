"""Prints how users' code would be separated and limited on this machine; for ``fmesh doctor``.

``python -m`` runs it as a process of its own, as a worker is one: the trials fork, move the process
into control groups, and leave it with a filter on system calls.
"""

import os
import sys

import msgspec

from flowmesh_core.errors import FlowMeshError
from flowmesh_worker.engines.code import syscalls
from flowmesh_worker.engines.code.call_groups import groups_version, open_groups
from flowmesh_worker.engines.code.sandbox_level import detect_level


class SandboxReport(msgspec.Struct, frozen=True):
    """What a worker of this machine would have for users' code.

    Attributes:
        level: a ``SandboxLevel``.
        groups_version: of the control groups: 2, 1, or 0 where there are none.
        no_groups: why no memory group can be created; empty where one can.
        no_filter: why system calls cannot be filtered; empty where they can.
    """

    level: str
    groups_version: int
    no_groups: str = ""
    no_filter: str = ""


def sandbox_report() -> SandboxReport:
    """Tries the parts of the sandbox; the calling process is restricted afterwards."""
    return SandboxReport(
        detect_level(root=os.geteuid() == 0), groups_version(), _no_groups(), _no_filter()
    )


def _no_groups() -> str:
    try:
        open_groups()
    except FlowMeshError as e:
        return e.message
    return ""


def _no_filter() -> str:
    try:
        syscalls.no_new_privileges()
        syscalls.refuse_dangerous_calls()
    except OSError as e:
        return e.strerror or str(e)
    return ""


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(sandbox_report()))
