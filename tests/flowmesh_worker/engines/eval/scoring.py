"""Runs a scoring engine over rows, without a host."""

from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_core.catalog.built_in import builtin_catalog

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_core.identity.coerce import effective_params
from flowmesh_store.datasets import rows_to_chunks
from flowmesh_worker.engine_api import DatasetInput, Work


def dataset(rows: list[dict[str, Any]]) -> DatasetInput:
    manifest, blobs = rows_to_chunks(rows)
    return DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))


async def run(
    engine: Any, name: str, inputs: dict[str, list[dict[str, Any]]], **given: Any
) -> dict[str, Any]:
    contract = builtin_catalog().newest(name)
    assert contract is not None
    params = effective_params(contract, given)
    sets = {port: dataset(rows) for port, rows in inputs.items()}
    work = Work("action", "attempt", params, {}, sets, Path("unused"))
    outputs = (await engine.run(work, lambda *_: None)).outputs
    rows_to_chunks(outputs["rows"].rows, outputs["rows"].schema)  # they fit their schema
    return dict(outputs)


async def refused(
    engine: Any, name: str, inputs: dict[str, list[dict[str, Any]]], **given: Any
) -> Failure:
    with pytest.raises(AttemptError) as caught:
        await run(engine, name, inputs, **given)
    assert caught.value.failure.kind == FailureKind.BAD_INPUT
    assert caught.value.failure.remedy
    return caught.value.failure
