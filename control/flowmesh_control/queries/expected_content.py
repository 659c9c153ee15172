"""Sizes of what the steps of a planned run read and make, known or expected.

A step that reads what other steps will make has no actions yet. So that a forecast can estimate it,
their outputs are given sizes by simple rules: a step makes as many rows as it reads, times its
samples, and at most as many as its query's own limit; a trained model is as large as the one that
it starts from.
"""

import re
from collections.abc import Iterator

from flowmesh_core.catalog.builtin_models import BUILTIN_MODEL_BYTES, builtin_model
from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.graph.plan import FIRST, ArtifactSource, Edge, Source
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

ADAPTER_SHARE = 0.02
"""Of a model's bytes, an adapter's."""
_LIMIT = re.compile(r"\blimit\s+(\d+)\s*;?\s*$", re.IGNORECASE)


class ExpectedContent:
    """The artifacts of a run; one that does not exist yet has a size and no content."""

    def __init__(self, run: Run) -> None:
        """Knows nothing of the steps yet."""
        self._run = run
        self._made: dict[tuple[str, str], Artifact] = {}

    def inputs(self, step: StepRun) -> dict[str, Artifact]:
        """Returns a step's inputs by port, after ``add`` of the steps before it."""
        found = ((edge, self._artifact(edge)) for edge in step.plan.edges)
        return {edge.port: artifact for edge, artifact in found if artifact is not None}

    def add(self, step: StepRun, inputs: dict[str, Artifact]) -> None:
        """Adds a step's outputs, by what it reads."""
        for port, artifact in step.outputs.items():
            if artifact is not None:
                self._made[step.plan.path, port] = artifact
        if not step.ended:
            for made in _expected(step, inputs):
                self._made[step.plan.path, made.digest.rpartition(".")[2]] = made

    def _artifact(self, edge: Edge) -> Artifact | None:
        found = [a for a in map(self._of, edge.sources) if a is not None]
        if edge.pick == FIRST or len(found) == 1:
            return next(iter(found), None)
        if not found:
            return None
        rows, size = sum(a.rows for a in found), sum(a.size_bytes for a in found)
        return _sized(found[0].digest, edge.kind, rows, size)

    def _of(self, source: Source) -> Artifact | None:
        if isinstance(source, ArtifactSource):
            return self._run.artifacts.get(source.reference)
        return self._made.get((source.step, source.port))


def is_unsized(artifact: Artifact) -> bool:
    """Whether it is a model of which not even the size is expected."""
    return artifact.kind == PortKind.MODEL and not artifact.size_bytes


def _expected(step: StepRun, inputs: dict[str, Artifact]) -> Iterator[Artifact]:
    data = [a for a in inputs.values() if a.kind == PortKind.DATASET]
    rows = _rows_made(step, max((a.rows for a in data), default=0))
    size = max((a.size_bytes for a in data), default=0)
    model = _model_bytes(step, inputs)
    for port in step.contract.outputs:
        name = Digest(f"{step.plan.path}.{port.name}")
        match port.kind:
            case PortKind.DATASET:
                yield _sized(name, port.kind, rows, size)
            case PortKind.MODEL:
                yield _sized(name, port.kind, 0, model)
            case PortKind.ADAPTER:
                yield _sized(name, port.kind, 0, round(model * ADAPTER_SHARE))
            case _:
                yield _sized(name, port.kind, 0, 0)


def _rows_made(step: StepRun, rows: int) -> int:
    params = step.plan.params
    rows = round(rows * float(params.get("samples") or 1)) if step.contract.row_wise else rows
    limit = _LIMIT.search(str(params.get("query") or ""))
    most = int(limit.group(1)) if limit else params.get("limit")
    return min(rows, most) if isinstance(most, int) and most and rows else rows


def _model_bytes(step: StepRun, inputs: dict[str, Artifact]) -> int:
    name = builtin_model(step.plan.engine, step.plan.params)
    models = (a.size_bytes for a in inputs.values() if a.kind == PortKind.MODEL)
    return BUILTIN_MODEL_BYTES.get(name) or max(models, default=0)


def _sized(digest: Digest, kind: str, rows: int, size_bytes: int) -> Artifact:
    return Artifact(str(kind), digest, digest, size_bytes=size_bytes, rows=rows)
