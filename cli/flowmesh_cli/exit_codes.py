"""Exit codes of ``fmesh``, for scripts; ``docs/names.md`` has the table of their meanings."""

from collections.abc import Sequence
from enum import IntEnum

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.runs import RunStatus


class ExitCode(IntEnum):
    """Exit codes of ``fmesh``; they do not change between versions."""

    OK = 0
    """the command has done everything"""
    FAILED = 1
    """a run failed, an audit found a difference, or the store failed"""
    USAGE = 2
    """the command line or a file is wrong; nothing was started"""
    NO_FABRIC = 3
    """no fabric is running here, it stopped answering, or it is of another release"""
    REFUSED = 4
    """a run was not admitted: its budget or deadline cannot be met, or no worker can run it; or it
    has ended and can no longer be changed, or has not ended and cannot be deleted; or `fmesh
    doctor` found a problem"""
    NOT_FOUND = 5
    """no such run, step, artifact or engine"""
    CANCELLED = 6
    """another command cancelled a run, or its budget or deadline ended it"""
    INTERNAL = 70
    """an internal error; FMESH_DEBUG=1 shows the traceback"""
    HUNG = 75
    """the control plane in this process made no progress for 20 s and ended itself; run it again"""
    INTERRUPTED = 130
    """Ctrl-C, which cancelled the runs of this command; or the user declined a confirmation"""


def worst(runs: Sequence[RunStatus]) -> ExitCode:
    """Returns the exit code of ended runs."""
    phases = {run.phase for run in runs}
    if Phase.FAILED in phases:
        return ExitCode.FAILED
    return ExitCode.CANCELLED if Phase.CANCELLED in phases else ExitCode.OK
