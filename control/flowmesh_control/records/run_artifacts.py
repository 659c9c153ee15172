"""Resolves a name in a run to an artifact and the step that made it; used by the API."""

from collections.abc import Iterable

from flowmesh_control.errors import NotFoundError
from flowmesh_control.records.run_records import PinsRecord
from flowmesh_core.accounting.ledger_lines import Line, StepLine
from flowmesh_core.graph.plan import Source, StepSource
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.units import Digest


def made_by_steps(lines: Iterable[Line]) -> dict[str, dict[str, Artifact]]:
    """Returns what the steps of a run have made, by path and port, from the lines of its ledger."""
    ends = {line.step: line for line in lines if isinstance(line, StepLine)}
    return {
        path: {port: artifact for port, artifact in end.outputs.items() if artifact is not None}
        for path, end in ends.items()
    }


def made_as(name: str, uid: str, pins: PinsRecord, lines: Iterable[Line]) -> tuple[Digest, str]:
    """Returns the artifact of an output, or of a step's port, of a run.

    Args:
        name: of an output of the workflow, or ``STEP.PORT``.
        uid: of the run.
        pins: of the run.
        lines: of its ledger.

    Returns:
        Its digest, and the step that made it; an empty step for an input of the run.

    Raises:
        NotFoundError: there is none of that name, or several.
    """
    made = {
        f"{path}.{port}": (artifact.digest, path)
        for path, ports in made_by_steps(lines).items()
        for port, artifact in ports.items()
    }

    def given(source: Source) -> tuple[Digest, str] | None:
        if isinstance(source, StepSource):
            return made.get(f"{source.step}.{source.port}")
        artifact = pins.artifacts.get(source.reference)
        return None if artifact is None else (artifact.digest, "")

    sources = pins.plan.outputs.get(name)
    if sources is None:
        if name in made:
            return made[name]
        known = [*pins.plan.outputs, *made]
        raise NotFoundError(
            f"no output {name!r}{did_you_mean(name, known)}",
            where=uid,
            remedy=f"it has {', '.join(known[:12]) or 'none'}",
        )
    found = [artifact for source in sources if (artifact := given(source)) is not None]
    if len(found) == 1:
        return found[0]
    parts = ", ".join(digest[:12] for digest, _ in found[:8])
    raise NotFoundError(
        f"output {name!r} has {len(found)} parts" if found else f"output {name!r} is empty",
        where=uid,
        remedy=f"name one: {parts}" if found else "name another, or a step's port, STEP.PORT",
    )
