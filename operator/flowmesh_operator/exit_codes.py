"""Exit codes of the operator, which ``kubectl describe pod`` shows after a restart."""

from enum import IntEnum


class OperatorExitCode(IntEnum):
    """Exit codes of ``python -m flowmesh_operator``."""

    STOPPED = 0
    """stopped by SIGTERM or SIGINT; the lease was released"""
    FAILED = 1
    """an error that a restart may clear; the log says which"""
    SETTINGS = 2
    """an environment variable is missing or wrong; the message names it and the remedy"""
    LEADERSHIP_LOST = 3
    """the lease was not renewed in time, or another replica leads; a standby takes over"""
    WATCH_FAILED = 4
    """the watches on the API server failed permanently"""
    HUNG = 75
    """the event loop made no progress for 20 s; the log says what it was working on"""
