"""Requests a workflow's forecast from a fabric."""

from flowmesh_api.v1.plan import Forecast
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.errors import FilesError
from flowmesh_cli.workflows.sources import Source
from flowmesh_cli.workflows.upload import upload_inputs
from flowmesh_core.errors import SpecError


def forecast(http: ApiClient, source: Source) -> Forecast:
    """Uploads a workflow's local inputs and returns its forecast.

    Raises:
        FilesError: admission found problems; each has its place in the file.
    """
    upload_inputs(http, source)
    document = {"document": source.document.value, "uploads": source.uploads}
    try:
        return http.ask("POST", "/v1/plan", Forecast, document=document)
    except SpecError as e:
        raise FilesError(source.refused_lines(e.problems)) from None
