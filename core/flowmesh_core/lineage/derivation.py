"""Where artifacts came from: one derivation for each step of each run.

A projection of a run's plan and ledger. Two consumers of one artifact are two derivations, and a
hit is one as much as an execution: lineage says what a run used, not who computed it first.
"""

from collections.abc import Iterable, Mapping

import msgspec

from flowmesh_core.graph.plan import Plan, Source, StepPlan, StepSource
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.run.ledger import AttemptLine, HitLine, Line, StepLine
from flowmesh_core.units import Digest

ACTIONS_NAMED = 32
"""Of a step with more actions only the first are named; ``actions`` still counts all."""


class Derivation(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a step of a run made its outputs.

    Attributes:
        inputs: identity digests by port; several where sources are concatenated.
        outputs: identity digests by port.
        action_ids: the first of its actions, ``actions`` how many.
        producers: runs that had published what this one found.
    """

    uid: str
    run: str
    namespace: str
    step: str
    engine: str
    contract: int
    implementation: int
    inputs: dict[str, tuple[Digest, ...]]
    outputs: dict[str, Digest]
    time_s: float
    action_ids: tuple[Digest, ...] = ()
    actions: int = 0
    hits: int = 0
    producers: tuple[str, ...] = ()


def derivations(
    uid: str, plan: Plan, artifacts: Mapping[str, Artifact], lines: Iterable[Line]
) -> list[Derivation]:
    """Projects a run's ledger to what was made from what.

    Args:
        uid: the run.
        plan: what was run.
        artifacts: content by reference, for inputs that no step made.
        lines: the ledger.

    Returns:
        One derivation for each completed step, in the order of the plan.
    """
    ends: dict[str, StepLine] = {}
    made: dict[str, dict[Digest, str | None]] = {}
    for line in lines:
        if isinstance(line, StepLine):
            ends[line.step] = line
        elif isinstance(line, HitLine):
            made.setdefault(line.step, {})[line.action_id] = line.producer
        elif isinstance(line, AttemptLine) and line.outcome in ("published", "adopted"):
            made.setdefault(line.step, {})[line.action_id] = None
    found = []
    for step in plan.steps:
        end = ends.get(step.path)
        outputs = {} if end is None else {p: a.digest for p, a in end.outputs.items() if a}
        if end is None or not outputs:
            continue
        actions = made.get(step.path, {})
        producers = dict.fromkeys(p for p in actions.values() if p)
        found.append(
            Derivation(
                uid=uid,
                run=plan.name,
                namespace=plan.namespace,
                step=step.path,
                engine=step.engine,
                contract=step.contract,
                implementation=step.implementation,
                inputs=_inputs(step, ends, artifacts),
                outputs=outputs,
                time_s=end.time_s,
                action_ids=tuple(actions)[:ACTIONS_NAMED],
                actions=len(actions),
                hits=sum(p is not None for p in actions.values()),
                producers=tuple(producers)[:ACTIONS_NAMED],
            )
        )
    return found


def _inputs(
    step: StepPlan, ends: Mapping[str, StepLine], artifacts: Mapping[str, Artifact]
) -> dict[str, tuple[Digest, ...]]:
    found = {}
    for edge in step.edges:
        digests = [d for s in edge.sources if (d := _digest(s, ends, artifacts))]
        if digests:
            found[edge.port] = tuple(digests)
    return found


def _digest(
    source: Source, ends: Mapping[str, StepLine], artifacts: Mapping[str, Artifact]
) -> Digest | None:
    if isinstance(source, StepSource):
        end = ends.get(source.step)
        artifact = None if end is None else end.outputs.get(source.port)
    else:
        artifact = artifacts.get(source.reference)
    return None if artifact is None else artifact.digest
