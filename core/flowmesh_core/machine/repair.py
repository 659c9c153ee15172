"""Lost blobs: those still needed are reproduced and published with a higher generation.

A lost intermediate result that no step needs runs nothing. The control plane deletes corrupt blobs
first, so that the new ones take their place.
"""

from collections.abc import Collection

from flowmesh_api.v1.enums import StepState
from flowmesh_core.errors import Failure
from flowmesh_core.graph.plan import StepSource
from flowmesh_core.machine import actions, conditions
from flowmesh_core.machine.commands import DeleteCorruptBlobs
from flowmesh_core.machine.model import Action, Run, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest


def inputs_lost(
    state: State,
    action: Action,
    digests: frozenset[Digest] | frozenset[str],
    failure: Failure,
    now_s: float,
) -> None:
    """Reproduces an attempt's missing inputs in every run that wants the action.

    The action's subscribers begin again when their parents have completed again, since what a
    parent makes then may have another digest.
    """
    lost = frozenset(Digest(d) for d in digests)
    scopes = tuple(dict.fromkeys((*action.read_scopes, action.key.scope)))
    state.emit(DeleteCorruptBlobs(lost, action.first_run(), scopes))
    for subscriber in list(action.subscribers):
        run = state.runs[subscriber.uid]
        step = run.steps[subscriber.path]
        made = [p for p in step.parents if remake_lost(state, run, run.steps[p], lost, now_s)]
        if not made:
            step.failure = failure
        actions.unsubscribe(state, run, step)
        if made:
            reset(run, step)
        state.touch(run, subscriber.path)


def reset(run: Run, step: StepRun) -> None:
    """Forgets a step's inputs and parts, so that it begins again when its parents have ended."""
    step.begun, step.streams = False, ""
    step.terms = None
    conditions.forget(run, step)
    step.inputs = {}
    step.parts = {}
    step.fresh = []
    step.total = None
    step.pending_parts = 0
    step.waiting = sum(1 for p in step.parents if not run.steps[p].ended)


def remake_lost(
    state: State, run: Run, step: StepRun, lost: Collection[Digest], now_s: float
) -> bool:
    """Reproduces the parts of a completed step whose outputs have a lost blob.

    Returns:
        Whether anything is being reproduced, by this call or already.
    """
    if step.state is not StepState.COMPLETED:
        return not step.ended
    numbers = [n for n, part in step.parts.items() if _has_any(part.result, lost)]
    if not numbers and not _outputs_have_any(step, lost):
        return False
    run.move(step, StepState.READY, now_s, "a blob that is still needed is lost")
    # Damage is seldom a single blob: all of this step's blobs are verified, corrupt ones deleted.
    digests = frozenset(_output_digests(step))
    state.emit(DeleteCorruptBlobs(digests, run.uid, run.scopes.readable))
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
        generation = part.result.generation + 1 if part.result else 1
        step.pending_parts += 1
        actions.reproduce(state, run, step, number, generation, now_s)
    state.touch(run, step.plan.path)
    return True


def _output_digests(step: StepRun) -> set[Digest]:
    """All blobs of a step's outputs."""
    results = [part.result for part in step.parts.values() if part.result is not None]
    artifacts = [a for r in results for a in r.outputs.values()]
    artifacts += [a for a in step.outputs.values() if a is not None]
    return {d for a in artifacts for d in a.blobs()}


def _has_any(result: object, lost: Collection[Digest]) -> bool:
    outputs = getattr(result, "outputs", None) or {}
    return any(d in lost for artifact in outputs.values() for d in artifact.blobs())


def _outputs_have_any(step: StepRun, lost: Collection[Digest]) -> bool:
    return any(d in lost for a in step.outputs.values() if a is not None for d in a.blobs())


def outputs_lost(state: State, run: Run, lost: frozenset[Digest], now_s: float) -> bool:
    """Reproduces lost outputs of a run, each step's a limited number of times.

    Returns:
        Whether a step of the run can reproduce them.
    """
    state.emit(DeleteCorruptBlobs(lost, run.uid, run.scopes.readable))
    sources = (s for given in run.plan.outputs.values() for s in given)
    made = False
    for path in dict.fromkeys(s.step for s in sources if isinstance(s, StepSource)):
        step = run.steps[path]
        # A worker may report again and again what it does not store.
        if step.repairs < state.settings.repairs and remake_lost(state, run, step, lost, now_s):
            step.repairs += 1
            made = True
    return made
