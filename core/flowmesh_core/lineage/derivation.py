"""The origin of artifacts: one derivation for each step of each run.

Computed from a run's plan and ledger. Two consumers of one artifact are two derivations, and a hit
is one as much as an execution: lineage records what a run used, not which run computed it first.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from flowmesh_api.v1.enums import StepState
from flowmesh_api.v1.lineage import ArtifactInfo, Derivation, Producer
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_core.accounting.ledger_lines import Line, StepLine
from flowmesh_core.graph.plan import Edge, Plan, Source, StepPlan, StepSource
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.model import StepRun
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

ACTIONS_NAMED = 32
"""Of a step with more actions only the first are named; ``actions`` still counts all."""
PARAM_BYTES_MAX = 2048
"""Larger parameters (code, long templates) are named by digest; the run's pins have them whole."""
_SURELY_SHORT = PARAM_BYTES_MAX // 6 - 1
"""A text of this many characters is short even if all of them are escaped."""


_MADE_OUTCOMES = frozenset({"published", "adopted", "shared"})
_COMPLETED = StepState.COMPLETED
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def derivations(
    uid: str,
    plan: Plan,
    artifacts: Mapping[str, Artifact],
    lines: Iterable[Line],
    steps: Mapping[str, StepRun] | None = None,
) -> list[Derivation]:
    """Returns what was made from what, from a run's ledger.

    Args:
        uid: the run.
        plan: what was run.
        artifacts: content by reference, for inputs that no step made.
        lines: the ledger.
        steps: the run's steps as they ended, which know where their actions ran.

    Returns:
        One derivation for each completed step, in the order of the plan.
    """
    ends: dict[str, StepLine] = {}
    made: dict[str, dict[Digest, str | None]] = {}
    for line in lines:
        if type(line) is StepLine:
            ends[line.step] = line
        elif type(line) is AttemptLine:
            if line.outcome in _MADE_OUTCOMES:
                made.setdefault(line.step, {}).setdefault(line.action_id, None)
        elif type(line) is HitLine:
            made.setdefault(line.step, {})[line.action_id] = line.producer
    found = []
    about: dict[int, ArtifactInfo] = {}
    for step in plan.steps:
        end = ends.get(step.path)
        if end is None or end.state != _COMPLETED or not any(end.outputs.values()):
            continue
        inputs = inputs_of(step, ends, artifacts)
        ran = None if steps is None else steps.get(step.path)
        actions = made.get(step.path, {})
        found.append(_derivation(uid, plan, step, end, inputs, actions, ran, about))
    return found


def inputs_of(
    step: StepPlan, ends: Mapping[str, StepLine], artifacts: Mapping[str, Artifact]
) -> dict[str, tuple[Artifact, ...]]:
    """Returns a step's inputs by port; several artifacts where sources are concatenated."""
    found = {}
    for edge in step.edges:
        if used := sources_of(edge, ends, artifacts):
            found[edge.port] = tuple([artifact for _, artifact in used])
    return found


def sources_of(
    edge: Edge, ends: Mapping[str, StepLine], artifacts: Mapping[str, Artifact]
) -> list[tuple[Source, Artifact]]:
    """Returns the sources that a port used, each with its artifact; skipped ones are left out."""
    found = [(s, a) for s in edge.sources if (a := _artifact(s, ends, artifacts)) is not None]
    return found if edge.concatenate else found[:1]


def _artifact(
    source: Source, ends: Mapping[str, StepLine], artifacts: Mapping[str, Artifact]
) -> Artifact | None:
    if isinstance(source, StepSource):
        end = ends.get(source.step)
        return None if end is None else end.outputs.get(source.port)
    return artifacts.get(source.reference)


def _derivation(
    uid: str,
    plan: Plan,
    step: StepPlan,
    end: StepLine,
    inputs: dict[str, tuple[Artifact, ...]],
    actions: dict[Digest, str | None],
    ran: StepRun | None,
    about: dict[int, ArtifactInfo],
) -> Derivation:
    outputs = {port: a for port, a in end.outputs.items() if a is not None}
    found = [producer for producer in actions.values() if producer is not None]
    involved = [*outputs.values(), *[a for given in inputs.values() for a in given]]
    for artifact in involved:
        if id(artifact) not in about:  # once per artifact; the ledger's lines keep the id valid
            about[id(artifact)] = _artifact_info(artifact)
    row_port, row_output = _row_ports(ran, inputs, outputs)
    return Derivation(
        uid=uid,
        run=plan.name,
        namespace=plan.namespace,
        step=step.path,
        engine=step.engine,
        contract=step.contract,
        implementation=step.implementation,
        inputs={port: tuple([a.digest for a in given]) for port, given in inputs.items()},
        outputs={port: a.digest for port, a in outputs.items()},
        time_s=end.time_s,
        action_ids=tuple(actions)[:ACTIONS_NAMED],
        actions=len(actions),
        hits=len(found),
        producers=tuple(dict.fromkeys(filter(None, found)))[:ACTIONS_NAMED] if found else (),
        params={name: _short(value) for name, value in step.params.items()},
        fields=step.fields,
        about={a.digest: about[id(a)] for a in involved},
        makers=_producers(ran),
        row_port=row_port,
        row_output=row_output,
    )


def _artifact_info(artifact: Artifact) -> ArtifactInfo:
    blob = artifact.blob if artifact.blob != artifact.digest else ""
    return ArtifactInfo(artifact.kind, artifact.size_bytes, artifact.rows, blob)


def _short(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str) and len(value) <= _SURELY_SHORT:
        return value
    encoded = msgspec.json.encode(value)
    if len(encoded) <= PARAM_BYTES_MAX:
        return value
    return {"digest": digest_bytes(encoded), "bytes": len(encoded)}


def _producers(ran: StepRun | None) -> tuple[Producer, ...]:
    """The distinct workers that made a step's results, the busiest first."""
    results = [p.result for p in ran.parts.values() if p.result is not None] if ran else []
    made = [r.provenance for r in results if r.provenance.worker]
    producers = [Producer(p.worker, p.pool, p.device_class, p.libraries, 1) for p in made]
    if len(producers) <= 1:
        return tuple(producers)
    counts: dict[bytes, tuple[Producer, int]] = {}
    for producer in producers:
        key = msgspec.msgpack.encode(producer)
        counts[key] = (producer, counts.get(key, (producer, 0))[1] + 1)
    busiest = sorted(counts.values(), key=lambda c: (-c[1], c[0].worker))
    return tuple(msgspec.structs.replace(m, actions=n) for m, n in busiest[:ACTIONS_NAMED])


def _row_ports(
    ran: StepRun | None,
    inputs: Mapping[str, tuple[Artifact, ...]],
    outputs: Mapping[str, Artifact],
) -> tuple[str, str]:
    """The ports that correspond chunk by chunk; empty where their chunks do not."""
    if ran is None or not ran.contract.row_wise or not ran.contract.row_output:
        return "", ""
    port, output = ran.contract.row_wise, ran.contract.row_output
    made = outputs.get(output)
    given = inputs.get(port, ())
    if made is None or made.manifest is None or any(a.manifest is None for a in given):
        return "", ""
    taken = sum(c.count > 0 for a in given if a.manifest for c in a.manifest.chunks)
    # A chunk without output rows has no chunk in the output, and which one it was is not recorded.
    return (port, output) if taken == len(made.manifest.chunks) else ("", "")
