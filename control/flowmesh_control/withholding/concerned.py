"""Which runs and artifacts are concerned where results are withheld."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from flowmesh_api.v1.lineage import Derivation
from flowmesh_api.v1.runs import RunSummary
from flowmesh_api.v1.withheld import ConcernedRun, DerivedArtifact
from flowmesh_control.records.derived_artifacts import DerivedArtifacts
from flowmesh_control.withholding.search import FoundResult
from flowmesh_core.machine.model import Run

STEPS_NAMED = 32
"""Of a run with more steps only the first are named."""


def concerned_runs(
    found: Sequence[FoundResult],
    lineage: DerivedArtifacts,
    live: Iterable[Run],
    ended: Iterable[RunSummary],
) -> tuple[ConcernedRun, ...]:
    """Returns the runs that have a withheld result, then those that have what was made of one.

    Args:
        found: the withheld results.
        lineage: of their outputs.
        live: the runs under way.
        ended: summaries of ended runs, for their phases.
    """
    runs: dict[str, ConcernedRun] = {}
    for uid, steps, run in _under_way(found, live):
        runs[uid] = ConcernedRun(uid, run.plan.name, run.plan.namespace, run.phase, steps)
    phases = {run.uid: run.phase for run in ended}
    for derived, derivations in ((False, lineage.having), (True, lineage.derived)):
        for made in derivations:
            _add(runs, made, phases.get(made.uid, ""), derived=derived)
    return tuple(runs.values())


def derived_artifacts(lineage: DerivedArtifacts) -> tuple[DerivedArtifact, ...]:
    """Returns the artifacts that were made of withheld results, nearest first."""
    found = []
    for made in lineage.derived:
        for port, digest in made.outputs.items():
            about = made.about.get(digest)
            kind = "" if about is None else about.kind
            found.append(DerivedArtifact(digest, kind, made.uid, made.step, port))
    return tuple(found)


def _add(runs: dict[str, ConcernedRun], made: Derivation, phase: str, *, derived: bool) -> None:
    known = runs.get(made.uid)
    if known is None:
        known = ConcernedRun(made.uid, made.run, made.namespace, phase, (), derived)
    steps = tuple(dict.fromkeys((*known.steps, made.step)))[:STEPS_NAMED]
    runs[made.uid] = msgspec.structs.replace(known, steps=steps)


def _under_way(
    found: Sequence[FoundResult], live: Iterable[Run]
) -> Iterator[tuple[str, tuple[str, ...], Run]]:
    """Yields the runs under way that have a withheld result, with the steps that have it."""
    withheld = {(one.result.action_id, one.result.created_s) for one in found}
    for run in live:
        steps = [
            path
            for path, step in run.steps.items()
            if any(
                part.result is not None
                and (part.result.action_id, part.result.created_s) in withheld
                for part in step.parts.values()
            )
        ]
        if steps:
            yield run.uid, tuple(steps[:STEPS_NAMED]), run
