"""Workers that break the protocol get no new work, where others can do it.

The gateway drops what an honest worker never sends: an attempt that was not assigned to the worker,
or a value that cannot be. Content that is not what its identity says counts in the same way, once
the control plane has compared it itself. Three of these by one worker and it is cordoned until the
control plane's epoch ends. The last worker that offers an engine is never cordoned, and neither is
any on a laptop, where all workers are their one owner's (``Settings.violations_max`` 0).
"""

from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.state import State

NAMES_MAX = 4096
"""Workers whose violations are remembered; the oldest is forgotten first."""


def violated(state: State, name: str, pool: str = "") -> None:
    """Counts a protocol violation of a worker, which may be cordoned for it.

    Args:
        state: the machine's.
        name: of the worker.
        pool: its pool, where it may have left since; else empty.
    """
    worker = state.workers.get(name)
    if worker is not None and pool not in ("", worker.shape.pool):
        worker = None  # another one, which has the name now
    if worker is None and not pool:
        return
    key = (worker.shape.pool if worker is not None else pool, name)
    state.figures.protocol_violations[key[0]] += 1
    count = state.violations.pop(key, 0) + 1
    state.violations[key] = count  # now the newest
    if len(state.violations) > NAMES_MAX:
        oldest = next(iter(state.violations))
        del state.violations[oldest]
        state.distrusted.discard(oldest)
    most = state.settings.violations_max
    if worker is None or not most or count < most or key in state.distrusted:
        return
    if _replaceable(state, worker):
        state.distrusted.add(key)
        state.dirty = True


def disagreed(state: State, name: str, pool: str) -> None:
    """Cordons a worker whose result two others have not repeated, and believes it nothing more.

    As after violations, the last worker that offers an engine goes on, and any on a laptop; what it
    has published is withheld all the same.

    Args:
        state: the machine's.
        name: of the worker.
        pool: its pool.
    """
    key = (pool, name)
    worker = state.workers.get(name)
    if not state.settings.violations_max or key in state.disbelieved:
        return
    if worker is None or worker.shape.pool != pool or _replaceable(state, worker):
        state.distrusted.add(key)
        state.disbelieved.add(key)
        state.dirty = True


def _replaceable(state: State, worker: Worker) -> bool:
    """Whether other connected workers offer all engines that this one offers."""
    others = [w for w in state.workers.values() if w is not worker and state.takes_work(w)]
    return all(
        any(w.shape.engines.get(engine) == versions for w in others)
        for engine, versions in worker.shape.engines.items()
    )
