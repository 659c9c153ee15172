"""Formats the worker's own log lines: as text, or JSON if ``FLOWMESH_LOG_FORMAT`` is ``json``.

Fields have the control plane's names, so that both logs can be searched for one attempt. A worker
knows runs by uid only; it does not know the names of workflows and steps.
"""

import logging
from collections.abc import Mapping

from pythonjsonlogger.json import JsonFormatter

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.messages import Assignment

VARIABLE = "FLOWMESH_LOG_FORMAT"


def formatter(environment: Mapping[str, str], worker: str) -> logging.Formatter:
    """Returns the formatter that the environment selects; every line names the worker.

    Raises:
        FlowMeshError: the variable is neither ``text`` nor ``json``.
    """
    log_format = environment.get(VARIABLE, "text")
    if log_format == "text":
        return logging.Formatter(f"{worker} %(levelname)s %(message)s")
    if log_format == "json":
        return JsonFormatter(
            "%(levelname)s %(name)s %(message)s",
            rename_fields={"levelname": "level", "name": "logger"},
            timestamp="time",
            static_fields={"worker": worker},
        )
    raise FlowMeshError(
        f"{log_format!r} is not a log format: expected text or json",
        where=VARIABLE,
        remedy="set it to text or json",
    )


def attempt_fields(assignment: Assignment) -> dict[str, object]:
    """Returns the fields of a line about an attempt: ``extra`` of the logging call."""
    return {
        "attempt": assignment.attempt_id,
        "action": assignment.action_id,
        "engine": assignment.engine,
        "runs": list(assignment.run_uids),
    }
