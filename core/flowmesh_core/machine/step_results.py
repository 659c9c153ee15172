"""Results that the control plane composes: joined data sets, reduced metrics, whole steps."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flowmesh_core.catalog.contract import INSTANCES, PortKind
from flowmesh_core.dataset.manifest import Manifest, concat, dataset_digest, encode_manifest
from flowmesh_core.dataset.reductions import reduce_metrics
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine import result_ttl
from flowmesh_core.machine.action_spec import name_of, question_of
from flowmesh_core.machine.cache_scopes import scopes_of
from flowmesh_core.machine.commands import Publish
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import (
    ActionResult,
    Artifact,
    Bill,
    PartProvenance,
    Provenance,
    content_artifact,
)

if TYPE_CHECKING:
    from flowmesh_core.units import Digest

COLLECTED_BYTES_MAX = 1024 * 1024
"""Metrics travel in an assignment."""


def dataset_artifact(manifest: Manifest) -> Artifact:
    """Returns the artifact of a manifest that the control plane composed."""
    return Artifact(
        kind=PortKind.DATASET,
        digest=dataset_digest(manifest),
        blob=digest_bytes(encode_manifest(manifest)),
        size_bytes=manifest.blob_bytes,
        rows=manifest.row_count,
        manifest=manifest,
    )


def empty_dataset(columns: Mapping[str, str]) -> Artifact:
    """Returns a data set with these columns and without rows."""
    return dataset_artifact(Manifest(Schema.of(columns)))


def manifest_of(artifact: Artifact) -> Manifest:
    """Returns a data set's manifest.

    Raises:
        FlowMeshError: the artifact has no manifest.
    """
    if artifact.manifest is None:
        raise FlowMeshError(
            f"{artifact.kind} {artifact.digest[:12]} has no manifest", remedy="import it again"
        )
    return artifact.manifest


def metrics_artifact(values: dict[str, Any]) -> Artifact:
    """Returns the artifact of metrics that the control plane composed."""
    data = canonical_bytes(values)
    return content_artifact(PortKind.METRICS, digest_bytes(data), len(data), values)


def instances_artifact(instances: Sequence[tuple[Mapping[str, Any], Artifact]]) -> Artifact:
    """Returns the metrics of several step instances as one artifact, for a port that collects them.

    Args:
        instances: the matrix values and the metrics of each.

    Raises:
        FlowMeshError: they are larger than an action may be given.
    """
    listed = []
    for matrix, artifact in instances:
        if artifact.value is None:
            raise FlowMeshError(
                f"the values of the metrics {artifact.digest[:12]} are not known",
                remedy="run the step that made them again",
            )
        listed.append({"matrix": dict(matrix), "metrics": artifact.value})
    collected = metrics_artifact({INSTANCES: listed})
    if collected.size_bytes > COLLECTED_BYTES_MAX:
        raise FlowMeshError(
            f"the metrics of {len(listed)} step instances have {collected.size_bytes} bytes, of at"
            f" most {COLLECTED_BYTES_MAX}",
            remedy="read fewer instances, such as name=value in place of *",
        )
    return collected


def compose(step: StepRun, port: str, results: list[ActionResult]) -> Artifact | None:
    """Joins a port's outputs of a step's parts; None where no part has that output.

    Raises:
        FlowMeshError: the parts do not fit together.
    """
    artifacts = [r.outputs[port] for r in results if port in r.outputs]
    if len(artifacts) == 1 or not artifacts:
        return artifacts[0] if artifacts else None
    declared = step.contract.output_port(port)
    if declared is None or declared.kind is PortKind.DATASET:
        return dataset_artifact(concat([manifest_of(g) for g in artifacts]))
    if declared.kind is PortKind.METRICS:
        return metrics_artifact(
            reduce_metrics(declared.reduction, [g.value or {} for g in artifacts])
        )
    raise FlowMeshError(
        f"{declared.kind} outputs of {len(artifacts)} chunks cannot be joined",
        where=f"{step.plan.path}.{port}",
        remedy="the engine's contract must not be row-wise with such an output",
    )


def publish_step(
    state: State, run: Run, step: StepRun, results: list[ActionResult], now_s: float
) -> None:
    """Publishes the whole step under the data set's digest, so that one look-up finds it."""
    inputs = dict(step.inputs)
    if step.streams:
        row = run.steps[step.streams].outputs.get(run.steps[step.streams].contract.row_output)
        if row is None:
            return
        inputs[step.contract.row_wise] = row
    outputs = {port: a for port, a in step.outputs.items() if a is not None}
    key = ActionKey(scopes_of(run, step, inputs)[0], name_of(run, step, inputs))
    inline: dict[Digest, bytes] = {}
    for artifact in outputs.values():
        if artifact.kind == PortKind.METRICS and artifact.value is not None:
            inline[artifact.blob] = canonical_bytes(artifact.value)
        elif artifact.manifest is not None:
            inline.update({d: run.inline[d] for d in artifact.blobs() if d in run.inline})
    run.inline.update(inline)
    found_in = dict.fromkeys(p.key.scope for p in step.parts.values() if p.key is not None)
    state.emit(
        Publish(
            key,
            ActionResult(
                action_id=key.action_id,
                generation=1 + max(r.generation for r in results) * step.skip_lookup,
                engine=step.contract.name,
                contract=step.contract.version,
                implementation=step.contract.implementation,
                inputs={port: a.digest for port, a in inputs.items()},
                outputs=outputs,
                params=step.plan.params,
                fields=step.plan.fields,
                inline=inline,
                bill=Bill(
                    sum(r.bill.nanousd for r in results),
                    sum(r.bill.joules for r in results),
                    any(r.bill.joules_estimated for r in results),
                ),
                provenance=_provenance(results),
                created_s=now_s,
                expires_s=result_ttl.expires_s(state, (run.uid,), now_s),
                run_uid=run.uid,
                namespace=run.plan.namespace,
            ),
            replace=step.skip_lookup,
            not_before_s=question_of(run, step, ())[1],
            min_trust=run.min_trust,
            copy_from=tuple(scope for scope in found_in if scope != key.scope),
        )
    )


def _provenance(results: list[ActionResult]) -> Provenance:
    """Returns the provenance of a whole step, which names the attempts of all of its parts."""
    return Provenance(
        trust=min(r.provenance.trust for r in results),
        parts=tuple(
            PartProvenance(
                r.provenance.attempt_id, r.provenance.worker, r.provenance.pool, r.created_s
            )
            for r in results
        ),
    )
