"""Reconstructs the actions behind a run's steps from its durable records.

Inputs of a step are its parents' outputs in the ledger; its parts are the chunks of its row port.
Each action gets the name that it had in the run, so that its published record can be read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flowmesh_api.v1.enums import StepState
from flowmesh_core.accounting.ledger_lines import Line, StepLine
from flowmesh_core.catalog.contract import Determinism
from flowmesh_core.catalog.determinism import determinism_of
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.graph.plan import StepPlan
from flowmesh_core.identity.quarantine_salt import signature_class
from flowmesh_core.machine.action_spec import name_of
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.step_results import dataset_artifact, manifest_of
from flowmesh_core.machine.steps import inputs_of
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class ReproducibleAction:
    """An action whose result a run used.

    Attributes:
        chunk: its number in the step's row port; -1 where the step is one action.
        inputs: artifacts by port.
    """

    step: StepPlan
    chunk: int
    inputs: dict[str, Artifact]
    action_id: Digest
    signature_class: Digest
    determinism: Determinism


def made_by(run: Run, lines: Iterable[Line]) -> Iterator[ReproducibleAction]:
    """Yields the actions of a run's completed steps, in the order of the plan.

    Args:
        run: as it was pinned; the outputs of its steps are filled in from the ledger.
        lines: its ledger.
    """
    ends = {la.step: la for la in lines if isinstance(la, StepLine)}
    for path, step in run.steps.items():
        end = ends.get(path)
        if end is None or end.state != StepState.COMPLETED:
            continue
        step.outputs = end.outputs
        # Every parent comes before its children, so that its outputs are known by now.
        inputs = inputs_of(run, step)
        if inputs is None:
            continue
        step.inputs = inputs
        for chunk, part_inputs in _parts(step, inputs):
            yield _action(run, step, chunk, part_inputs)


def _parts(step: StepRun, inputs: dict[str, Artifact]) -> Iterator[tuple[int, dict[str, Artifact]]]:
    port = step.contract.row_wise
    row = inputs.get(port) if port else None
    try:
        manifest = manifest_of(row) if row is not None else None
    except FlowMeshError:  # a very large manifest is not in the ledger
        manifest = None
    if manifest is None or len(manifest.chunks) <= 1:
        yield -1, inputs
        return
    for number, chunk in enumerate(manifest.chunks):
        piece = dataset_artifact(Manifest(manifest.schema, (chunk,)))
        yield number, {**inputs, port: piece}


def _action(run: Run, step: StepRun, chunk: int, inputs: dict[str, Artifact]) -> ReproducibleAction:
    plan = step.plan
    digests = {port: a.digest for port, a in inputs.items()}
    return ReproducibleAction(
        step=plan,
        chunk=chunk,
        inputs=inputs,
        action_id=name_of(run, step, inputs),
        signature_class=signature_class(step.contract, plan.params, plan.fields, digests),
        determinism=determinism_of(step.contract, plan.params, plan.fields),
    )
