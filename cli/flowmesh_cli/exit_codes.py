"""What ``fmesh`` ends with, for scripts. The table of meanings is ``docs/names.md``."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``fmesh``; they do not change between versions."""

    OK = 0
    """everything that was asked for is done"""
    FAILED = 1
    """a run failed, an audit found a difference, or the store could not do what was asked"""
    USAGE = 2
    """the command line or a file is wrong; nothing was started"""
    NO_FABRIC = 3
    """no fabric is running here, or it went away"""
    REFUSED = 4
    """a run was not admitted: its budget or deadline cannot be met, or no worker can take it; or it
    has ended, and can no longer be changed"""
    NOT_FOUND = 5
    """no such run, step, artifact or engine"""
    CANCELLED = 6
    """a run was cancelled by somebody else, or its budget or deadline ended it"""
    INTERNAL = 70
    """a mistake in FlowMesh; FMESH_DEBUG=1 shows where"""
    INTERRUPTED = 130
    """Ctrl-C; the runs of this command were cancelled. Or a question was answered with no"""
