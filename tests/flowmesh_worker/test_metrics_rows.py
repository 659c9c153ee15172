"""What `data.metrics` makes of the metrics of step instances; the engine alone, without a host."""

from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.dataset import ColumnType
from flowmesh_core.errors import AttemptError
from flowmesh_core.identity import canonical_bytes, digest_bytes
from flowmesh_worker.engine_api import BlobInput, Rows, Work
from flowmesh_worker.engines.data.metrics import MetricsRows


async def rows(*instances: tuple[dict[str, Any], dict[str, Any]]) -> Rows:
    listed = [{"matrix": matrix, "metrics": metrics} for matrix, metrics in instances]
    data = canonical_bytes({"instances": listed})
    work = Work(
        "action",
        "attempt",
        {},
        {},
        {"metrics": BlobInput(digest_bytes(data), data)},
        Path("unused"),
    )
    result = await MetricsRows().run(work, lambda *_: None)
    made = result.outputs["rows"]
    assert isinstance(made, Rows)
    return made


async def test_a_row_has_the_matrix_values_and_the_metrics_of_an_instance() -> None:
    found = await rows(
        ({"lr": 1e-5, "seed": 1}, {"loss": 0.5, "count": 3}),
        ({"lr": 1e-4, "seed": 2}, {"loss": 2.0, "count": 4}),
    )
    assert found.rows == [
        {"lr": 1e-5, "seed": 1, "loss": 0.5, "count": 3},
        {"lr": 1e-4, "seed": 2, "loss": 2.0, "count": 4},
    ]
    assert found.schema is not None
    assert found.schema.types() == {
        "count": ColumnType.INT,
        "loss": ColumnType.FLOAT,
        "lr": ColumnType.FLOAT,
        "seed": ColumnType.INT,
    }


async def test_what_an_instance_does_not_have_is_null() -> None:
    found = await rows(({"i": 1}, {"a": 1}), ({}, {"b": {"x": [1]}}))
    assert found.rows == [{"i": 1, "a": 1, "b": None}, {"i": None, "a": None, "b": {"x": [1]}}]


async def test_a_matrix_value_and_a_metric_of_one_name_are_refused() -> None:
    with pytest.raises(AttemptError, match="'loss' is a matrix value and a metric"):
        await rows(({"loss": "mse"}, {"loss": 0.5}))


async def test_values_of_different_types_are_refused_with_the_column() -> None:
    with pytest.raises(AttemptError, match=r"the metrics as rows: .*'v'"):
        await rows(({}, {"v": 1}), ({}, {"v": "two"}))
