"""The worker's own log lines: for people, or JSON where ``FLOWMESH_LOG_FORMAT`` is ``json``.

Named as the control plane's are, so that both can be searched by one attempt; a worker knows runs
by uid and no names of workflows and steps.
"""

import logging
from collections.abc import Mapping

from pythonjsonlogger.json import JsonFormatter

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.protocol.wire_ids import without_mac

VARIABLE = "FLOWMESH_LOG_FORMAT"


def formatter(environment: Mapping[str, str], worker: str) -> logging.Formatter:
    """The formatter that the environment asks for; every line names the worker.

    Raises:
        FlowMeshError: the variable is neither ``text`` nor ``json``.
    """
    form = environment.get(VARIABLE, "text")
    if form == "text":
        return logging.Formatter(f"{worker} %(levelname)s %(message)s")
    if form == "json":
        return JsonFormatter(
            "%(levelname)s %(name)s %(message)s",
            rename_fields={"levelname": "level", "name": "logger"},
            timestamp="time",
            static_fields={"worker": worker},
        )
    raise FlowMeshError(
        f"there is no form of log lines {form!r}", where=VARIABLE, remedy="set it to text or json"
    )


def about(assignment: Assignment) -> dict[str, object]:
    """The fields of a line about an attempt: ``extra`` of the logging call."""
    return {
        "attempt": without_mac(assignment.attempt_id),
        "action": assignment.action_id,
        "engine": assignment.engine,
        "runs": list(assignment.run_uids),
    }
