"""The workflow of a batch: one step that answers the rows of its input file."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_control.openai.records import BatchRecord
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.openai.request import EMBEDDINGS
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.spec.quantities import budget, not_zero

STEP, RESPONSES, COUNTS = "answer", "responses", "counts"
BUDGET = "budget_usd"
_CPU = "cpu"


def workflow_of(
    batch: BatchRecord,
    rows: str,
    model: str,
    engine: EngineContract,
    shapes: Sequence[WorkerShape],
) -> dict[str, Any]:
    """Returns the workflow of a batch.

    Args:
        batch: whose deadline, budget and labels it has.
        rows: the reference of its requests.
        model: a built-in name or an address.
        engine: that answers.
        shapes: of the workers that there are or may be; where all are CPUs, the engine runs in
            float32, since only so its results do not depend on the batch there.
    """
    inputs: dict[str, Any] = {"requests": {"dataset": rows}}
    step: dict[str, Any] = {
        "name": STEP,
        "uses": engine.name,
        "inputs": {"rows": "inputs.requests"},
    }
    if engine.input_port("model") is not None:
        inputs["model"] = {"model": model}
        step["inputs"]["model"] = "inputs.model"
    options: dict[str, Any] = {}
    if batch.endpoint == EMBEDDINGS and engine.param("task") is not None:
        options["task"] = "embed"
    if shapes and all(s.device_class == _CPU for s in shapes) and engine.identity_fields:
        options["dtype"] = "float32"
    if options:
        step["with"] = options
    spec: dict[str, Any] = {
        "inputs": inputs,
        "steps": [step],
        "outputs": {RESPONSES: f"{STEP}.rows", COUNTS: f"{STEP}.metrics"},
        "deadline": batch.window,
    }
    if BUDGET in batch.metadata:
        spec["budgetUsd"] = batch.metadata[BUDGET]
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {
            "name": batch.uid,
            "namespace": batch.namespace,
            "labels": _labels(batch.metadata),
        },
        "spec": spec,
    }


def require_budget(metadata: Mapping[str, str]) -> None:
    """Refuses a budget that cannot be read.

    Raises:
        ValueError: it is not an amount of dollars, or 0, which would be no limit.
    """
    if BUDGET in metadata:
        not_zero(budget(metadata[BUDGET]))


def _labels(metadata: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in metadata.items() if name != BUDGET}
