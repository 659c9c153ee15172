"""How a replica of the operator ends; the kubelet restarts it, people read why."""

from enum import IntEnum


class OperatorExitCode(IntEnum):
    """Exit codes of ``python -m flowmesh_operator``."""

    STOPPED = 0
    """told to stop (SIGTERM); the lease was given back"""
    FAILED = 1
    """something failed that a restart may mend; the log says what"""
    SETTINGS = 2
    """an environment variable is missing or wrong; the message names it and the remedy"""
    LEADERSHIP_LOST = 3
    """the lease was not renewed in time, or another replica leads; a standby goes on"""
    WATCH_FAILED = 4
    """the watches on the API server failed for good"""
