"""Limits of a namespace's quota on its attempts: user code, workers, dollars a day, stored bytes.

Calls of user code and workers are hard constraints of placement. A namespace that has spent its
day's dollars, or stores too much, is held: its actions wait without being in the scheduler's index,
and what runs goes on. An action that another namespace wants too is placed for that one.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.fleet.snapshot import CodeCalls
from flowmesh_core.fleet.worker_bounds import WorkerUse
from flowmesh_core.machine import ready_actions
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.events import NamespaceLimits
from flowmesh_core.machine.model import Action, Hold
from flowmesh_core.machine.state import State
from flowmesh_core.units import usd_text

CHECK_S = 1.0
"""Seconds between checks of holds: the ready actions of a namespace are listed when one changes."""


def changed(state: State, limits: Mapping[str, NamespaceLimits], now_s: float) -> None:
    """Makes these the limits of namespaces; attempts that run already go on."""
    if limits == state.limits:
        return
    separated = (state.separates_code, state.worker_limits.keys())
    state.limits = dict(limits)
    state.code_limits = {
        namespace: limit.user_code_calls
        for namespace, limit in limits.items()
        if limit.user_code_calls is not None
    }
    state.worker_limits = {
        namespace: limit.workers for namespace, limit in limits.items() if limit.workers is not None
    }
    if (state.separates_code, state.worker_limits.keys()) != separated:
        for action in state.ready.values():
            ready_actions.mark_changed(state, action)
    _update_holds(state, now_s)
    state.dirty = True


def time_passed(state: State, now_s: float) -> None:
    """Brings the holds up to date about every second."""
    if state.limits and not 0.0 <= now_s - state.holds_checked_s < CHECK_S:
        _update_holds(state, now_s)


def admits(state: State, action: Action, worker: Worker, now_s: float) -> bool:
    """Whether an attempt may start on a worker; a namespace that has spent its dollars is held.

    It compares what is reserved already, so that one cycle does not exceed a limit by more than an
    attempt.
    """
    namespaces = {state.runs[uid].plan.namespace for uid in action.runs()}
    for namespace in namespaces - state.held.keys():
        if (hold := _hold(state, namespace, now_s)) is not None:
            _set_holds(state, {**state.held, namespace: hold})
    if state.worker_limits and not _may_use(state, action, worker):
        state.dirty = True  # it has changed since the snapshot
        return False
    return ready_actions.may_start(state, action)


def _may_use(state: State, action: Action, worker: Worker) -> bool:
    """Whether a worker may run an action without one too many for the namespaces that want it."""
    namespaces = ready_actions.bounded_tenants(state, action)
    return not namespaces or any(
        n in worker.tenants or len(used_workers(state, n)) < state.worker_limits[n]
        for n in namespaces
    )


def used_workers(state: State, namespace: str) -> frozenset[str]:
    """Returns the workers that run attempts which only this namespace wants."""
    return frozenset([w.name for w in state.workers.values() if namespace in w.tenants])


def worker_uses(state: State) -> dict[str, WorkerUse]:
    """Returns the workers of every namespace that has a limit."""
    return {n: WorkerUse(used_workers(state, n), most) for n, most in state.worker_limits.items()}


def code_calls(state: State) -> dict[str, CodeCalls]:
    """Returns the calls of user code of every namespace that has a limit."""
    running = Counter(
        a.code_tenant for a in state.attempts.values() if a.code_tenant and a.end is None
    )
    return {n: CodeCalls(running[n], most) for n, most in state.code_limits.items()}


def _update_holds(state: State, now_s: float) -> None:
    state.holds_checked_s = now_s
    # What was reserved for a run that has ended since is released here.
    state.reserved = Counter()
    for run in state.runs.values():
        state.reserved[run.plan.namespace] += run.reserved_nanousd
    found = {n: h for n in state.limits if (h := _hold(state, n, now_s)) is not None}
    # The text of a hold stays while that continues: each change of it is a change of every status.
    same = {n for n in found.keys() & state.held.keys() if _continues(state.held[n], found[n])}
    _set_holds(state, {n: state.held[n] if n in same else h for n, h in found.items()})


def _continues(before: Hold, now: Hold) -> bool:
    return (before.cause, before.ends_s) == (now.cause, now.ends_s)


def _hold(state: State, namespace: str, now_s: float) -> Hold | None:
    """Returns why a namespace gets no new attempts; None where it gets some."""
    limit = state.limits.get(namespace)
    if limit is None:
        return None
    if limit.storage_full:
        return Hold(RejectionCause.STORAGE_QUOTA, limit.storage_full)
    most = limit.nanousd_per_day
    if most is None:
        return None
    ask = "ask an administrator for a larger usdPerDay"
    if most == 0:
        text = f"namespace {namespace} may spend nothing; {ask}"
        return Hold(RejectionCause.DOLLAR_QUOTA, text)
    spent, reserved = state.daily_spend.total(namespace, now_s), state.reserved[namespace]
    if spent + reserved < most:
        return None
    ends_s = 0.0
    when = "it goes on when attempts under way have ended"
    if spent >= most:
        ends_s = now_s + state.daily_spend.wait_s(namespace, most, now_s)
        when = f"it goes on at {datetime.fromtimestamp(ends_s, UTC):%H:%M} UTC"
    beside = f" and reserved {usd_text(reserved)} for what runs" if reserved else ""
    return Hold(
        RejectionCause.DOLLAR_QUOTA,
        f"namespace {namespace} has spent {usd_text(spent)} in 24 hours{beside}, of at most "
        f"{usd_text(most)}; {when}, or {ask}",
        ends_s,
    )


def _set_holds(state: State, holds: Mapping[str, Hold]) -> None:
    """Holds these namespaces and no other; their ready actions leave the index, others return."""
    differing = holds.keys() ^ state.held.keys()
    state.held = holds
    if not differing:
        return
    state.dirty = True
    for action in state.ready.values():
        if any(state.runs[uid].plan.namespace in differing for uid in action.runs()):
            ready_actions.mark_changed(state, action)
