"""One check of ``fmesh doctor``: what was found, and the remedy."""

from enum import StrEnum

import msgspec

from flowmesh_core.errors import FlowMeshError


class CheckLevel(StrEnum):
    """How bad it is: a warning limits what works, a problem stops all work."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(msgspec.Struct, frozen=True):
    """What a check found.

    Attributes:
        name: of the check.
        message: what was found.
        remedy: empty where nothing is to be done.
    """

    name: str
    level: CheckLevel
    message: str
    remedy: str = ""


def ok(name: str, message: str) -> Check:
    """Returns a check that found nothing wrong."""
    return Check(name, CheckLevel.OK, message)


def warning(name: str, message: str, remedy: str) -> Check:
    """Returns a check that found what limits some work."""
    return Check(name, CheckLevel.WARNING, message, remedy)


def problem(name: str, message: str, remedy: str) -> Check:
    """Returns a check that found what stops all work."""
    return Check(name, CheckLevel.PROBLEM, message, remedy)


def of_error(name: str, error: FlowMeshError) -> Check:
    """Returns the problem that an error describes."""
    where = f"{error.where}: " if error.where else ""
    return problem(name, f"{where}{error.message}", error.remedy)
