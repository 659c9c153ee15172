"""The course of a step run: from its parents' ends to its own.

``settle`` processes every touched step until nothing changes any more. A step begins when its
parents have ended; a row-wise step whose row port is fed by a row-wise step streams: chunk k begins
when chunk k of its parent is published.
"""

from itertools import islice
from typing import Any

from flowmesh_api.v1.enums import StepState
from flowmesh_core.accounting.ledger_lines import StepLine
from flowmesh_core.catalog.contract import Port, PortKind
from flowmesh_core.catalog.resolved_contract import output_ports
from flowmesh_core.dataset.manifest import Manifest, concat
from flowmesh_core.errors import Failure, FailureKind, FlowMeshError
from flowmesh_core.graph.plan import EMPTY, FIRST, ArtifactSource, Edge, Source, StepSource
from flowmesh_core.lifecycle_states import ENDED
from flowmesh_core.machine import actions, cache_hits, conditions
from flowmesh_core.machine.action_spec import name_of, question_of
from flowmesh_core.machine.cache_scopes import scopes_of
from flowmesh_core.machine.commands import LookUp
from flowmesh_core.machine.events import ActionKey, LookedUp
from flowmesh_core.machine.model import PendingLookUp, Run, StepLookUp, StepPart, StepRun
from flowmesh_core.machine.state import State
from flowmesh_core.machine.step_results import (
    compose,
    dataset_artifact,
    empty_dataset,
    instances_artifact,
    manifest_of,
    publish_step,
)
from flowmesh_core.protocol.results import Artifact

BROKEN = frozenset({StepState.FAILED, StepState.CANCELLED})


_PENDING = StepState.PENDING
_READY = StepState.READY
_RUNNING = StepState.RUNNING
_COMPLETED = StepState.COMPLETED
_FAILED = StepState.FAILED
"""Local names: to look a member of an enum up takes 0.2 us in Python 3.11."""


def settle(state: State, run: Run, now_s: float) -> None:
    """Processes the run's touched steps until nothing changes any more."""
    while run.todo:
        step = run.steps[run.todo.popleft()]
        if step.ended:
            continue
        if step.failure is not None:
            _end(state, run, step, _FAILED, now_s, step.failure.kind)
        elif not step.begun:
            _try_begin(state, run, step, now_s)
        else:
            _advance(state, run, step, now_s)
    if run.unevaluated:
        conditions.evaluate_next(state, run)


def _try_begin(state: State, run: Run, step: StepRun, now_s: float) -> None:
    open_parents = []
    for path in step.parents:
        found = run.steps[path].state
        if found in BROKEN:
            _end(state, run, step, StepState.CANCELLED, now_s, FailureKind.UPSTREAM)
            return
        if found not in ENDED:
            open_parents.append(path)
    streams = _streams_from(run, step, open_parents) if open_parents else ""
    if open_parents and not streams:
        return
    wanted = not step.plan.when or conditions.verdict(run, step)
    if step.failure is not None:
        _end(state, run, step, _FAILED, now_s, step.failure.kind)
        return
    if wanted is None:
        return
    try:
        inputs = inputs_of(run, step, skip=streams) if wanted else None
    except FlowMeshError as e:
        step.failure = Failure(FailureKind.BAD_INPUT, e.reason, e.remedy)
        _end(state, run, step, _FAILED, now_s, FailureKind.BAD_INPUT)
        return
    if inputs is None:
        reason = _without_input(run, step, skip=streams) if wanted else "condition"
        _end(state, run, step, StepState.SKIPPED, now_s, reason)
        return
    step.inputs = inputs
    step.begun = True
    if streams:
        _stream(state, run, step, run.steps[streams], now_s)
    else:
        _begin(state, run, step, now_s)


def _streams_from(run: Run, step: StepRun, open_parents: list[str]) -> str:
    """The one open parent whose parts this step may use as they come; empty if there is none."""
    if len(open_parents) != 1 or not step.contract.row_wise:
        return ""
    name = open_parents[0]
    parent = run.steps[name]
    edges = [e for e in step.plan.edges if StepSource in map(type, e.sources)]
    uses = [(e.port, s) for e in edges for s in e.sources if _of(s, name)]
    row = StepSource(name, parent.contract.row_output)
    if uses != [(step.contract.row_wise, row)]:
        return ""
    if name in step.plan.when_steps or name in step.plan.after:
        return ""
    row_edges = (e for e in edges if e.port == step.contract.row_wise)
    if any(e.concatenate or len(e.sources) > 1 for e in row_edges):
        return ""
    multi = parent.begun and parent.state is _RUNNING and parent.total != 1
    return name if multi and not parent.step_level else ""


def _of(source: object, step: str) -> bool:
    return isinstance(source, StepSource) and source.step == step


def inputs_of(run: Run, step: StepRun, *, skip: str = "") -> dict[str, Artifact] | None:
    """Returns artifacts by port, or None where a required input comes from a skipped step."""
    found: dict[str, Artifact] = {}
    for edge in step.plan.edges:
        if skip and any(_of(s, skip) for s in edge.sources):
            continue
        artifact = artifact_of(run, edge)
        if artifact is not None:
            found[edge.port] = artifact
        elif edge.skips:
            return None
    return found


def _without_input(run: Run, step: StepRun, *, skip: str) -> str:
    """Names the first required input that is missing, and the step that would have made it."""
    for edge in step.plan.edges:
        paths = [s.step for s in edge.sources if isinstance(s, StepSource)]
        if not edge.skips or skip in paths or artifact_of(run, edge) is not None:
            continue
        others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        skipped = any(run.steps[p].state is StepState.SKIPPED for p in paths)
        return f"input {'skipped' if skipped else 'missing'}: {edge.port} from {paths[0]}{others}"
    return "input skipped"


def artifact_of(run: Run, edge: Edge) -> Artifact | None:
    """Returns what feeds a port; None where nothing does, or not yet."""
    used = used_sources(run, edge)
    if not used:
        return empty_dataset(edge.empty_columns) if edge.when_skipped == EMPTY else None
    if edge.concatenate and edge.kind == PortKind.METRICS:
        return instances_artifact([(_matrix(run, s), a) for s, a in used])
    if len(used) == 1 and not (edge.concatenate and len(edge.sources) > 1):
        return used[0][1]
    return dataset_artifact(concat([manifest_of(a) for _, a in used]))


def used_sources(run: Run, edge: Edge) -> list[tuple[Source, Artifact]]:
    """Returns the sources whose artifacts a port gets, in order, each with its artifact."""
    found = ((s, a) for s in edge.sources if (a := source_artifact(run, s)) is not None)
    return list(islice(found, 1) if edge.pick == FIRST else found)


def _matrix(run: Run, source: Source) -> dict[str, Any]:
    return run.steps[source.step].plan.matrix if isinstance(source, StepSource) else {}


def source_artifact(run: Run, source: Source) -> Artifact | None:
    """Returns a source's artifact; None for a skipped step's output."""
    if isinstance(source, ArtifactSource):
        return run.artifacts[source.reference]
    return run.steps[source.step].outputs.get(source.port)


def _begin(state: State, run: Run, step: StepRun, now_s: float) -> None:
    row = step.inputs.get(step.contract.row_wise) if step.contract.row_wise else None
    if step.state is _PENDING:
        run.move(step, _READY, now_s)
    if row is None or row.manifest is None or len(row.manifest.chunks) <= 1:
        step.total = step.pending_parts = 1
        step.parts = {0: StepPart(step.inputs)}
        actions.subscribe(state, run, step, 0, now_s)
        return
    if step.skip_lookup:
        expand(state, run, step, now_s)
        return
    publish, lookup = scopes_of(run, step, step.inputs)
    key = ActionKey(publish, name_of(run, step, step.inputs))
    asked = step.lookup = StepLookUp(key, question_of(run, step, lookup))
    waiting = state.step_lookups.get(asked)
    if waiting is None:
        command = LookUp(key, *asked.question, run.uid)
        waiting = state.step_lookups[asked] = PendingLookUp(command, (run.plan.namespace,))
        state.emit(command)
    elif (further := waiting.asked_by(run)) is not None:
        state.emit(further)
    waiting.steps[run.uid, step.plan.path] = None


def step_looked_up(state: State, event: LookedUp, now_s: float) -> None:
    """Applies the answer to a step-level look-up: a hit completes the step, a miss expands it."""
    if not state.step_lookups:
        return
    if event.scopes:
        answered = [StepLookUp(event.key, (event.scopes, event.not_before_s, event.min_trust))]
    else:
        answered = [asked for asked in state.step_lookups if asked.key == event.key]
    for asked in answered:
        waiting = state.step_lookups.pop(asked, None)
        for uid, path in waiting.steps if waiting is not None else ():
            run = state.runs.get(uid)
            step = run.steps[path] if run is not None else None
            if run is None or step is None or step.ended or step.parts:
                continue
            if event.result is not None:
                cache_hits.step_hit(state, run, step, event.key, event.result, now_s)
            else:
                expand(state, run, step, now_s)


def expand(state: State, run: Run, step: StepRun, now_s: float) -> None:
    """Makes one part per chunk of the row port, and subscribes each to its action."""
    row = step.inputs[step.contract.row_wise]
    chunks = manifest_of(row).chunks
    step.total = step.pending_parts = len(chunks)
    for number, chunk in enumerate(chunks):
        piece = dataset_artifact(Manifest(manifest_of(row).schema, (chunk,)))
        step.parts[number] = StepPart({**step.inputs, step.contract.row_wise: piece})
    for number in range(len(chunks)):
        actions.subscribe(state, run, step, number, now_s)


def _stream(state: State, run: Run, step: StepRun, parent: StepRun, now_s: float) -> None:
    step.streams = parent.plan.path
    if step.state is not _RUNNING:
        run.move(step, _RUNNING, now_s, f"streams from {parent.plan.path}")
    for number in sorted(n for n, p in parent.parts.items() if p.result is not None):
        _take_part(state, run, step, parent, number, now_s)


def _take_part(
    state: State, run: Run, step: StepRun, parent: StepRun, number: int, now_s: float
) -> None:
    part = parent.parts[number]
    if number in step.parts or part.result is None:
        return
    piece = part.result.outputs[parent.contract.row_output]
    step.parts[number] = StepPart({**step.inputs, step.contract.row_wise: piece})
    step.pending_parts += 1
    actions.subscribe(state, run, step, number, now_s)


def _advance(state: State, run: Run, step: StepRun, now_s: float) -> None:
    fresh, step.fresh = step.fresh, ()
    if fresh:
        if step.state is _READY and step.total != 1:
            run.move(step, _RUNNING, now_s)
        state.changed(run)
        _feed(state, run, step, fresh, now_s)
    if step.streams and step.total is None:
        parent = run.steps[step.streams]
        if parent.state is _COMPLETED:
            step.total = parent.total
        elif parent.ended:
            _end(state, run, step, StepState.CANCELLED, now_s, FailureKind.UPSTREAM)
            return
    if step.total is not None and step.pending_parts == 0 and len(step.parts) == step.total:
        _complete(state, run, step, now_s)


def _feed(state: State, run: Run, step: StepRun, fresh: tuple[int, ...], now_s: float) -> None:
    """Gives new parts to the steps that stream from this one, or could begin to."""
    path = step.plan.path
    for child_path in run.children.get(path, ()):
        child = run.steps[child_path]
        if child.streams == path and not child.ended:
            for number in fresh:
                _take_part(state, run, child, step, number, now_s)
        elif not child.begun and child.contract.row_wise and step.total != 1:
            run.todo.append(child_path)


def _ports(step: StepRun) -> tuple[Port, ...]:
    return output_ports(step.contract, step.plan.params)


def _complete(state: State, run: Run, step: StepRun, now_s: float) -> None:
    results = [r for n in sorted(step.parts) if (r := step.parts[n].result) is not None]
    try:
        step.outputs = {port.name: compose(step, port.name, results) for port in _ports(step)}
    except FlowMeshError as e:
        step.failure = Failure(FailureKind.ENGINE, e.reason, e.remedy)
        _end(state, run, step, _FAILED, now_s, FailureKind.ENGINE)
        return
    if step.total and step.total > 1 and not step.step_level:
        publish_step(state, run, step, results, now_s)
    _end(state, run, step, _COMPLETED, now_s, "")


def _end(state: State, run: Run, step: StepRun, to: StepState, now_s: float, reason: str) -> None:
    """Ends a step and marks its children."""
    step.reason = reason
    if to is not _COMPLETED:
        actions.unsubscribe(state, run, step)
        step.outputs = {p.name: None for p in _ports(step)}
    run.move(step, to, now_s, reason)
    if to is _FAILED:
        state.figures.steps_failed[reason] += 1
    if to is _FAILED and run.failure is None:
        run.failed_step, run.failure = step.plan.path, step.failure
    state.append(
        run,
        StepLine(
            time_s=now_s,
            step=step.plan.path,
            state=to,
            reason=reason,
            message=step.failure.message if step.failure else "",
            outputs=step.outputs,
        ),
    )
    state.changed(run)
    for path in run.children.get(step.plan.path, ()):
        child = run.steps[path]
        child.waiting -= 1
        if child.waiting <= 0 or to in BROKEN or child.streams:
            run.todo.append(path)


def end_cancelled(state: State, run: Run, step: StepRun, now_s: float, reason: str) -> None:
    """Cancels a step that has not ended."""
    _end(state, run, step, StepState.CANCELLED, now_s, reason)
