"""What the steps of a run made and reused, by its ledger; used by the API and by verification."""

from collections.abc import Iterable

from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_control.errors import NotFoundError
from flowmesh_control.records.run_records import PinsRecord
from flowmesh_core.accounting.ledger_lines import Line, StepLine
from flowmesh_core.graph.plan import Source, StepSource
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.units import Digest

_MADE = frozenset({"published", "adopted", "shared"})
Actions = dict[str, dict[int, Digest]]
"""Action ids by step and part, in the order of the parts."""


def actions_of(lines: Iterable[Line]) -> Actions:
    """Returns the actions whose results the steps of a run used, by its ledger.

    A whole step that was reused is its part -1, and replaces the others.
    """
    found: Actions = {}
    for line in lines:
        if isinstance(line, HitLine) or (isinstance(line, AttemptLine) and line.outcome in _MADE):
            parts = found.setdefault(line.step, {})
            parts[line.chunk] = line.action_id
    return {step: dict(sorted(parts.items())) for step, parts in found.items()}


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
