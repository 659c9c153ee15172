"""The format of log lines: plain text, or JSON objects where ``FLOWMESH_LOG_FORMAT`` is ``json``.

A line about a run has ``workflow`` (namespace and name), ``run``, ``step``, ``action`` and
``attempt``, as far as they are known: ``extra`` of the logging call, fields of the JSON object.
"""

import logging
from collections.abc import Mapping

from pythonjsonlogger.json import JsonFormatter

from flowmesh_core.errors import FlowMeshError

VARIABLE = "FLOWMESH_LOG_FORMAT"
PLAIN = "%(asctime)s %(levelname)s %(name)s %(message)s"


class LogFormatError(FlowMeshError):
    """The requested format of log lines does not exist."""


def formatter(environment: Mapping[str, str], plain: str = PLAIN) -> logging.Formatter:
    """Returns the formatter that the environment asks for.

    Raises:
        LogFormatError: the variable is neither ``text`` nor ``json``.
    """
    form = environment.get(VARIABLE, "text")
    if form == "text":
        return logging.Formatter(plain)
    if form == "json":
        names = {"levelname": "level", "name": "logger"}
        return JsonFormatter(
            "%(levelname)s %(name)s %(message)s", rename_fields=names, timestamp="time"
        )
    raise LogFormatError(f"{form!r} is not a log format: expected text or json", where=VARIABLE)
