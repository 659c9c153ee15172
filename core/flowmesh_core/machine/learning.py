"""Teaches the cost model and the memory limits what workers report, where it is credible.

A report counts where it is within ``FACTOR`` of the present estimate, or within ``FACTOR`` of what
the control plane's own clock saw: so an estimate that is wrong by more is still corrected, by
reports that the worker cannot have made up. Other reports are counted and not learned (ADR 38).
"""

from collections.abc import Iterable

from flowmesh_core.costmodel.fetch_times import LEARNED_FROM_BYTES
from flowmesh_core.costmodel.model import CostKey
from flowmesh_core.costmodel.regression import LEAST_S
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.model import Attempt
from flowmesh_core.machine.state import State
from flowmesh_core.placement.cycle import slowdown
from flowmesh_core.protocol.messages import AttemptEnd, EngineInstanceState
from flowmesh_core.units import Digest

FACTOR = 10.0
ESTIMATE_FROM = 4
"""Observations of a signature from which its prediction counts as an estimate.

Before, there is only the prior, which may be wrong by orders of magnitude."""
SHARE_OVER = 1.25
"""A host is ended when it exceeds its reservation by more."""
FEW_ATTEMPTS = 32


def attempt_succeeded(
    state: State, worker: Worker, attempt: Attempt, end: AttemptEnd, now_s: float
) -> None:
    """Learns seconds and memory from the report of an attempt that succeeded."""
    spec, usage = attempt.action.spec, end.usage
    key, device_class = CostKey.of(attempt.info), worker.shape.device_class
    peak_mib = usage.peak_memory_mib
    if not _memory_is_credible(state, key, worker, attempt, peak_mib):
        state.figures.not_learned[worker.shape.pool, "memory"] += 1
        peak_mib = 0
    state.learned.succeeded(attempt.info.base, device_class, peak_mib)
    state.model.observe_memory(key, device_class, peak_mib)
    _learn_fetch(state, attempt, end, now_s)
    if usage.resumed:
        return  # it did an unknown part of the work
    mates = len(worker.attempts)
    if mates <= FEW_ATTEMPTS:  # among many, the few of other instances do not matter
        mates = len(worker.by_signature.get(attempt.info.signature, ()))
    batch = float(1 + mates)
    if not _run_is_credible(state, key, attempt, end, batch, now_s):
        state.figures.not_learned[worker.shape.pool, "run"] += 1
        return
    alone_s = usage.run_s / _slowdown(worker, attempt, now_s)
    load_s = 0.0 if _woken(worker, attempt.info.signature) else usage.load_s
    state.model.observe(key, spec.work, alone_s, load_s, device_class, batch=batch)
    if attempt.predicted_s:
        state.figures.predicted(key.engine, attempt.predicted_s, usage.run_s)


def _learn_fetch(state: State, attempt: Attempt, end: AttemptEnd, now_s: float) -> None:
    """Learns what the network of the worker's pool carries, from a fetch of some size."""
    pool, usage = attempt.shape.pool, end.usage
    if usage.fetched_bytes < LEARNED_FROM_BYTES:
        return
    if _fetch_is_credible(state, attempt, end, now_s):
        state.model.observe_fetch(pool, usage.fetched_bytes, usage.fetch_s)
    else:
        state.figures.not_learned[pool, "fetch"] += 1


def _slowdown(worker: Worker, attempt: Attempt, now_s: float) -> float:
    """How many times as long an attempt took because other instances used the devices too.

    Placement multiplies what is learned by the instances that are busy then, so learning it with
    them would count them twice, and make a device that was crowded once look slow for ever.
    """
    passed_s = now_s - attempt.assigned_s
    if passed_s <= 0.0:
        return 1.0
    return slowdown(worker.shape, (worker.busy_s - attempt.busy_from_s) / passed_s)


def _woken(worker: Worker, signature: Digest) -> bool:
    """Whether what an attempt waited for may have been a wake of its instance, and no load."""
    return any(i.wake_s and i.signature == signature for i in worker.instances)


def loading_since_s(
    worker: Worker, instances: Iterable[EngineInstanceState], now_s: float
) -> dict[str, float]:
    """Returns by signature when the hosts that load or wake were first seen to."""
    loading = (i.signature for i in instances if not i.load_s or i.state == "loading")
    return {s: worker.loading_since_s.get(s, now_s) for s in loading}


def instances_loaded(
    state: State, worker: Worker, instances: Iterable[EngineInstanceState], now_s: float
) -> None:
    """Learns how long the hosts that have become ready took to load, or to wake."""
    before = {instance.signature: instance for instance in worker.instances}
    began = loading_since_s(worker, instances, now_s)
    for instance in instances:
        if instance.signature in began:
            continue
        since_s = worker.loading_since_s.get(instance.signature)
        info, known = state.signatures.get(instance.signature), before.get(instance.signature)
        if info is None or instance.asleep:
            continue
        seen_s = None if since_s is None else now_s - since_s
        if known is None or not known.load_s:
            _loaded(state, worker, info, instance.load_s, seen_s)
        elif (known.asleep or known.state == "loading") and isinstance(instance.wake_s, float):
            _woke(state, worker, info, instance.wake_s, seen_s)
    worker.loading_since_s = began


def _loaded(
    state: State, worker: Worker, info: SignatureInfo, load_s: float, seen_s: float | None
) -> None:
    key, device_class = CostKey.of(info), worker.shape.device_class
    size = sum(size for _, size in info.components)
    learned = state.model.learned_load_s(key, device_class, size)
    if not learned or _near(load_s, learned) or (seen_s is not None and _near(load_s, seen_s)):
        state.model.observe_load(key, device_class, size, load_s)
    else:
        state.figures.not_learned[worker.shape.pool, "load"] += 1


def _woke(
    state: State, worker: Worker, info: SignatureInfo, wake_s: float, seen_s: float | None
) -> None:
    """Learns the seconds of a wake, which are often too few to be seen from here."""
    key, device_class = CostKey.of(info), worker.shape.device_class
    size = sum(size for _, size in info.components)
    wakes = state.figures.wakes[worker.shape.pool]
    wakes[0] += 1
    expected_s = state.model.wake_s(key, device_class, size)
    if _near(wake_s, expected_s) or (seen_s is not None and _near(wake_s, seen_s)):
        wakes[1] += wake_s
        state.model.observe_wake(key, device_class, size, wake_s)
    else:
        state.figures.not_learned[worker.shape.pool, "wake"] += 1


def _run_is_credible(
    state: State, key: CostKey, attempt: Attempt, end: AttemptEnd, batch: float, now_s: float
) -> bool:
    run_s = max(end.usage.run_s, LEAST_S)  # no estimate is lower
    if attempt.predicted_s and _near(run_s, attempt.predicted_s):
        return True
    # Of an adopted attempt, which was assigned earlier, the gateway has compared the time since
    # the attempt token was issued.
    seen_s = now_s - attempt.assigned_s
    if (attempt.adopted or run_s <= seen_s) and seen_s <= FACTOR * run_s:
        return True
    work, device_class = attempt.action.spec.work, attempt.shape.device_class
    if state.model.observations(key, device_class, work.component_bytes) < ESTIMATE_FROM:
        return True
    return _near(run_s, state.model.predict(key, device_class, work, batch=batch).seconds)


def _fetch_is_credible(state: State, attempt: Attempt, end: AttemptEnd, now_s: float) -> bool:
    """Whether so much can have come in these seconds.

    A network that seems far quicker or slower than expected is believed where the seconds are most
    of those that the control plane has seen, and the bytes are about what the attempt needs.
    """
    usage, work = end.usage, attempt.action.spec.work
    seen_s = now_s - attempt.assigned_s
    if usage.fetch_s > seen_s and not attempt.adopted:
        return False
    if _near(usage.fetch_s, state.model.fetch_s(usage.fetched_bytes, attempt.shape.pool)):
        return True
    needed_bytes = work.component_bytes + work.input_bytes
    return seen_s <= FACTOR * usage.fetch_s and usage.fetched_bytes <= FACTOR * needed_bytes


def _memory_is_credible(
    state: State, key: CostKey, worker: Worker, attempt: Attempt, peak_mib: int
) -> bool:
    shape = worker.shape
    if peak_mib > SHARE_OVER * shape.device_memory_mib * shape.devices:
        return False
    if peak_mib <= SHARE_OVER * attempt.memory_mib:
        return True
    learned_mib = state.model.memory_mib(key, shape.device_class)
    return not learned_mib or _near(peak_mib, learned_mib)


def _near(a: float, b: float) -> bool:
    return a <= FACTOR * b and b <= FACTOR * a
