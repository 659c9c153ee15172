"""The engine ``http.request``: one request for each row, with the answer in a column."""

from typing import Any

import orjson

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_core.errors import FailureKind
from flowmesh_worker.engine_api import (
    Progress,
    Result,
    Rows,
    Usage,
    Work,
)
from flowmesh_worker.engines.egress.addresses import REQUEST_ALLOW_VARIABLE, AddressPolicy
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.http.call import CallError, HttpResponse
from flowmesh_worker.engines.http.client import HttpClient
from flowmesh_worker.engines.http.request_templates import RequestTemplates
from flowmesh_worker.engines.http.row_calls import ERROR, STATUS, RowCalls


class HttpRequest(EngineBase):
    """The engine ``http.request``; see :class:`flowmesh_worker.engine_api.Engine`."""

    capacity = 16

    def __init__(self) -> None:
        """Reads the allowed networks from the environment."""
        self._client = HttpClient(AddressPolicy.from_environment(REQUEST_ALLOW_VARIABLE))
        self._calls = RowCalls(self._client)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Sends one request for each row."""
        given = work.dataset("rows")
        output, as_json = str(work.params["output"]), work.params["parse"] == "json"
        rows = given.rows()
        templates = RequestTemplates(work.params, work.secrets)
        calls = [templates.call(work.action_id, row, n) for n, row in enumerate(rows, 1)]

        def read(answer: HttpResponse) -> dict[str, Any]:
            return {output: _parsed(answer) if as_json else answer.text}

        cells = await self._calls.run(
            work, calls, read, {output: None, STATUS: None, ERROR: None}, progress
        )
        kinds = {
            **given.manifest.schema.types(),
            output: ColumnType.JSON if as_json else ColumnType.STRING,
            STATUS: ColumnType.INT,
            ERROR: ColumnType.STRING,
        }
        merged = [{**row, **own} for row, own in zip(rows, cells, strict=True)]
        return Result({"rows": Rows(merged, Schema.of(kinds))}, Usage(units=len(rows)))

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()


def _parsed(answer: HttpResponse) -> Any:
    if not answer.text:
        return None
    try:
        return orjson.loads(answer.text)
    except orjson.JSONDecodeError as error:
        raise CallError(
            FailureKind.BAD_INPUT,
            f"the answer is not JSON ({error})",
            "set with.parse: text to take it as it is",
        ) from None
