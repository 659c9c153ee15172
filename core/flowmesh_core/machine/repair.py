"""Lost blobs: those still needed are reproduced and published with a higher generation.

A lost intermediate result that no step needs runs nothing. The control plane deletes corrupt blobs
first, so that the new ones take their place. A blob that is intact and not what its identity says
is lost too, with the record that pairs them: other workers reproduce it, and the control plane
compares it before it counts that against the worker that reported it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from flowmesh_api.v1.enums import StepState
from flowmesh_core.errors import BY_IDENTITY, Failure
from flowmesh_core.graph.plan import StepSource
from flowmesh_core.machine import actions, conditions
from flowmesh_core.machine.commands import CompareContent, DeleteCorruptBlobs
from flowmesh_core.machine.model import Action, Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class LostBlobs:
    """Blobs that cannot be used.

    Attributes:
        digests: their names.
        by_identity: whether they are intact and not what an identity says; else they are missing or
            damaged.
    """

    digests: frozenset[Digest]
    by_identity: bool = False


def inputs_lost(
    state: State,
    action: Action,
    digests: frozenset[Digest] | frozenset[str],
    failure: Failure,
    now_s: float,
) -> None:
    """Reproduces an attempt's missing inputs in every run that wants the action.

    The action's subscribers begin again when their parents have completed again, since what a
    parent makes then may have another digest. Those whose own inputs have none of the blobs begin
    again at once: equal identities may have different blobs, and the attempt read another's.
    """
    lost = LostBlobs(frozenset(Digest(d) for d in digests), failure.reason == BY_IDENTITY)
    if not lost.by_identity:
        scopes = tuple(dict.fromkeys((*action.read_scopes, action.key.scope)))
        state.emit(DeleteCorruptBlobs(lost.digests, action.first_run(), scopes))
    was_read = _names_any(action.spec.inputs, lost.digests)
    for subscriber in list(action.subscribers):
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        inputs = step.parts[subscriber.part].inputs
        goes_on = was_read and not _names_any(inputs, lost.digests)
        for path in step.parents:
            goes_on = remake_lost(state, run, run.steps[path], lost, now_s) or goes_on
        if not goes_on:
            step.failure = failure
        actions.unsubscribe(state, run, step)
        if goes_on:
            reset(run, step)
        state.touch(run, subscriber.path)


def reset(run: Run, step: StepRun) -> None:
    """Forgets a step's inputs and parts, so that it begins again when its parents have ended."""
    step.begun, step.streams = False, ""
    step.terms = None
    conditions.forget(run, step)
    step.inputs = {}
    step.parts = {}
    step.fresh = ()
    step.total = None
    step.pending_parts = 0
    step.waiting = sum(1 for p in step.parents if not run.steps[p].ended)


def remake_lost(state: State, run: Run, step: StepRun, lost: LostBlobs, now_s: float) -> bool:
    """Reproduces the parts of a completed step whose outputs have a lost blob.

    Returns:
        Whether anything is being reproduced, by this call or already. A part that was reproduced
        as often as the settings allow is not.
    """
    if step.state is not StepState.COMPLETED:
        return not step.ended
    numbers = [
        n
        for n, part in step.parts.items()
        if part.result and _names_any(part.result.outputs, lost.digests)
    ]
    if not numbers and not _names_any(step.outputs, lost.digests):
        return False
    if not _count_repairs(state, step, numbers or list(step.parts)):
        return False
    run.move(step, StepState.READY, now_s, "a blob that is still needed is lost")
    if lost.by_identity:
        _compare(state, run, step, lost.digests)
    else:
        # Damage is seldom a single blob: all of the step's are verified, corrupt ones deleted.
        made = frozenset(_output_digests(step))
        state.emit(DeleteCorruptBlobs(made, run.uid, run.scopes.readable))
    for child in run.children.get(step.plan.path, ()):
        run.steps[child].waiting += 1
        conditions.forget(run, run.steps[child])
    if step.step_level:  # its parts are not known, so they are looked up one by one
        reset(run, step)
        step.step_level = False
        step.skip_lookup = True
        state.touch(run, step.plan.path)
        return True
    for number in numbers or list(step.parts):
        part = step.parts[number]
        producer = part.result.provenance.worker if part.result and lost.by_identity else ""
        generation = part.result.generation + 1 if part.result else 1
        step.pending_parts += 1
        actions.reproduce(state, run, step, number, generation, now_s, avoid=producer)
    state.touch(run, step.plan.path)
    return True


def _count_repairs(state: State, step: StepRun, numbers: Collection[int]) -> bool:
    """Counts that parts are reproduced; returns False where one was often enough."""
    if any(step.repairs.get(n, 0) >= state.settings.repairs for n in numbers):
        return False
    step.repairs.update((n, step.repairs.get(n, 0) + 1) for n in numbers)
    return True


def _compare(state: State, run: Run, step: StepRun, blobs: frozenset[Digest]) -> None:
    """Has the results that name these blobs compared, unless the control plane composed them."""
    for part in step.parts.values():
        result = part.result
        if result and result.provenance.worker and _names_any(result.outputs, blobs):
            state.emit(CompareContent(result, blobs, run.uid, run.scopes.readable))


def _output_digests(step: StepRun) -> set[Digest]:
    """All blobs of a step's outputs."""
    results = [part.result for part in step.parts.values() if part.result is not None]
    artifacts = [a for r in results for a in r.outputs.values()]
    artifacts += [a for a in step.outputs.values() if a is not None]
    return {d for a in artifacts for d in a.blobs()}


def _names_any(artifacts: Mapping[str, Artifact | None], lost: Collection[Digest]) -> bool:
    return any(d in lost for a in artifacts.values() if a is not None for d in a.blobs())


def outputs_lost(state: State, run: Run, digests: frozenset[Digest], now_s: float) -> bool:
    """Reproduces lost outputs of a run.

    Returns:
        Whether a step of the run can reproduce them.
    """
    lost = LostBlobs(digests)
    state.emit(DeleteCorruptBlobs(digests, run.uid, run.scopes.readable))
    made = False
    for sources in run.plan.outputs.values():
        for source in sources:
            if isinstance(source, StepSource):
                made = remake_lost(state, run, run.steps[source.step], lost, now_s) or made
    return made
