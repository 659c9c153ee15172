"""Requests a workflow's forecast from a fabric."""

from collections.abc import Mapping

from flowmesh_api.v1.plan import Forecast
from flowmesh_api.v1.runs import ResolvedSource
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import FilesError
from flowmesh_cli.workflows.sources import Source
from flowmesh_cli.workflows.upload import upload_inputs
from flowmesh_core.errors import SpecError

RUNS_NOTHING = ("hit", "skip")
"""What a forecast expects of steps that run nothing."""


def forecast(
    http: ApiClient, source: Source, pins: Mapping[str, ResolvedSource] | None = None
) -> Forecast:
    """Uploads a workflow's local inputs and returns its forecast.

    Args:
        http: the fabric.
        source: the workflow.
        pins: what the addresses of its inputs mean now, where they were resolved.

    Raises:
        FilesError: admission found problems; each has its place in the file.
    """
    upload_inputs(http, source)
    document = {"document": source.document.value, "uploads": source.uploads}
    if pins:  # earlier releases refuse the field
        document["pins"] = pins
    try:
        return http.ask("POST", "/v1/plan", Forecast, document=document)
    except SpecError as e:
        raise FilesError(source.refused_lines(e.problems)) from None
