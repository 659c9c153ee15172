"""The engine ``data.metrics``: metrics of step instances as rows, to rank or to join them."""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.contract import INSTANCES
from flowmesh_core.dataset import infer_schema
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity import decode
from flowmesh_worker.engine_api import BlobInput, Progress, Result, Rows, Usage, Work
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.errors import bad_input

_PORT = "metrics"


class MetricsRows(EngineBase):
    """The engine ``data.metrics``."""

    capacity = 16

    async def run(self, work: Work, progress: Progress) -> Result:
        """Returns a row for each instance: its matrix values and its metrics."""
        given = work.inputs[_PORT]
        assert isinstance(given, BlobInput)
        rows = metrics_rows(decode(given.read())[INSTANCES])
        try:
            schema = infer_schema(rows)
        except IdentityError as e:
            raise bad_input(f"the metrics as rows: {e.reason}", e.remedy) from e
        return Result({"rows": Rows(rows, schema)}, Usage(units=len(rows)))


def metrics_rows(instances: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns a row for each instance, all with the same columns.

    Args:
        instances: the ``matrix`` values and the ``metrics`` of each.

    Raises:
        AttemptError: a matrix value and a metric have the same name (kind ``bad-input``).
    """
    for instance in instances:
        if twice := sorted(instance["matrix"].keys() & instance["metrics"].keys()):
            raise bad_input(
                f"{twice[0]!r} is a matrix value and a metric of one step, and a row has one column"
                " of a name",
                "rename the matrix value",
            )
    rows = [{**i["matrix"], **i["metrics"]} for i in instances]
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]
