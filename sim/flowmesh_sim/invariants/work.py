"""Checks actions, attempts and devices: their states agree, and memory is not over-committed."""

from collections import defaultdict
from typing import TYPE_CHECKING

from flowmesh_api.v1.enums import ActionState
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.model import Action, Attempt
from flowmesh_core.machine.state import State
from flowmesh_sim.kernel.violation import violated

if TYPE_CHECKING:
    from flowmesh_core.units import Digest


def look_at_runs(state: State) -> None:
    """Checks runs: their open steps, reservations, evaluations and unsettled attempts."""
    reserved: dict[str, int] = defaultdict(int)
    for attempt in state.attempts.values():
        for uid, part in attempt.reserved.items():
            reserved[uid] += part
    for uid, run in state.runs.items():
        still = sum(not s.ended for s in run.steps.values())
        if run.open_steps != still:
            violated(f"run {uid}", f"{run.open_steps} open steps are counted, {still} are open")
        if run.reserved_nanousd != reserved.get(uid, 0):
            amount = f"{run.reserved_nanousd} nano-dollars are reserved"
            violated(f"run {uid}", f"{amount}, for attempts {reserved.get(uid, 0)}")
        granted = sum(one.granted for one in run.evaluations.values())
        if run.conditions.reserved != granted:
            steps = f"{run.conditions.reserved} steps of conditions are reserved"
            violated(f"run {uid}", f"{steps}, for evaluations of {granted}")
        if run.unevaluated and not run.evaluations:
            violated(f"run {uid}", f"conditions wait for nothing: {[*run.unevaluated]}")
        for attempt_id in run.unsettled:
            if attempt_id not in state.attempts:
                violated(f"run {uid}", f"waits for {attempt_id}, which is over")


def look_at_actions(state: State) -> None:
    """Checks actions: their states match their attempts, and subscribers may read them."""
    for key in state.ready:
        if state.actions[key].state is not ActionState.READY:
            violated(f"action {key}", f"is in the ready set and {state.actions[key].state}")
    for action in state.actions.values():
        _check_action(state, action)
    for attempt in state.attempts.values():
        worker = state.workers.get(attempt.worker)
        if attempt.end is None and (worker is None or attempt.attempt_id not in worker.attempts):
            violated(
                f"attempt {attempt.attempt_id}", f"goes on, and {attempt.worker} does not hold it"
            )
    for worker in state.workers.values():
        for attempt_id in worker.attempts:
            if attempt_id not in state.attempts:
                violated(f"worker {worker.name}", f"holds {attempt_id}, which is over")


def _check_action(state: State, action: Action) -> None:
    where = f"action {action.key}"
    if not action.subscribers:
        violated(where, "nobody subscribes to it")
    for subscriber in action.subscribers:
        run = state.runs[subscriber.uid]
        scopes = run.scopes
        if action.key.scope not in {scopes.publish, scopes.private, *scopes.lookup}:
            violated(where, f"run {subscriber.uid} may not read its scope")
    match action.state:
        case ActionState.READY if action.attempts or action.key not in state.ready:
            violated(where, f"waits, and has {len(action.attempts)} attempts")
        case ActionState.RUNNING if not action.attempts:
            violated(where, "runs without an attempt")
        case ActionState.PUBLISHING if action.publishing is None:
            violated(where, "is being published without an attempt")


def look_at_memory(state: State) -> None:
    """Checks that no device is over-committed, by the sum of its hosts' reservations."""
    for worker in state.workers.values():
        reserved = _reserved(worker)
        total = worker.shape.device_memory_mib * worker.shape.devices
        used = sum(reserved.values())
        if used > total:
            parts = {s[:8]: mib for s, mib in reserved.items()}
            violated(f"worker {worker.name}", f"over-committed by {used - total} MiB: {parts}")


def _reserved(worker: Worker) -> dict[str, int]:
    """Returns the reservation of each of a worker's hosts.

    Isolated attempts have hosts of their own; attempts of one signature share a host, which
    reserves what the worker reports, or the memory of the first assignment.
    """
    instances: dict[Digest, int] = {}
    for instance in (one for one in worker.instances if one.state != "closing"):
        known = instances.get(instance.signature, instance.memory_mib)
        instances[instance.signature] = min(instance.memory_mib, known)
    found: dict[str, int] = {}
    for attempt in worker.attempts.values():
        signature = attempt.info.signature
        if attempt.alone:
            found[attempt.attempt_id] = _requested_mib(attempt)
        elif signature not in found:
            found[signature] = instances.get(signature) or _requested_mib(attempt)
    return found


def _requested_mib(attempt: Attempt) -> int:
    return attempt.memory_mib or attempt.info.requirement.memory_mib
