"""The outputs of a run as far as they are published, in the order of their rows.

Of a row-wise step that has not completed, each chunk whose result is published counts. A run that
reached its deadline or was cancelled keeps these in its last record.
"""

from collections.abc import Iterable, Iterator

import msgspec

from flowmesh_core.graph.plan import StepSource
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.steps import source_artifact
from flowmesh_core.protocol.results import Artifact


class PublishedPart(msgspec.Struct, frozen=True):
    """A part of an output; ``first_row`` is where its input began in the step's rows, from 0."""

    artifact: Artifact
    first_row: int = 0


def partial_outputs(run: Run) -> dict[str, tuple[PublishedPart, ...]]:
    """Returns the published parts of each output, in order."""
    found = {}
    for name, sources in run.plan.outputs.items():
        parts: list[PublishedPart] = []
        for source in sources:
            artifact = source_artifact(run, source)
            if artifact is not None:
                parts.append(PublishedPart(artifact))
            elif isinstance(source, StepSource):
                parts.extend(_published(run.steps[source.step], source.port))
        found[name] = tuple(parts)
    return found


def whole_output(artifacts: Iterable[Artifact]) -> tuple[PublishedPart, ...]:
    """Returns a complete output as parts."""
    return tuple(PublishedPart(artifact) for artifact in artifacts)


def _published(step: StepRun, port: str) -> Iterator[PublishedPart]:
    row = 0
    for _, part in sorted(step.parts.items()):
        artifact = None if part.result is None else part.result.outputs.get(port)
        if artifact is not None:
            yield PublishedPart(artifact, row)
        rows = part.inputs.get(step.contract.row_wise)
        row += 0 if rows is None else rows.rows
