"""Workers that break the protocol get no new work, where others can do it.

The gateway drops what an honest worker never sends: an attempt that was not assigned to the worker,
or a value that cannot be. Three such messages of one worker and it is cordoned until the control
plane's epoch ends. The last worker that offers an engine is never cordoned, and neither is any on a
laptop, where all workers are their one owner's (``Settings.violations_max`` 0).
"""

from flowmesh_core.machine.model import Worker
from flowmesh_core.machine.state import State

NAMES_MAX = 4096
"""Workers whose violations are remembered; the oldest is forgotten first."""


def violated(state: State, name: str) -> None:
    """Counts a protocol violation of a worker, which may be cordoned for it."""
    worker = state.workers.get(name)
    if worker is None:
        return
    state.figures.protocol_violations[worker.shape.pool] += 1
    key = (worker.shape.pool, name)
    count = state.violations.pop(key, 0) + 1
    state.violations[key] = count  # now the newest
    if len(state.violations) > NAMES_MAX:
        oldest = next(iter(state.violations))
        del state.violations[oldest]
        state.distrusted.discard(oldest)
    most = state.settings.violations_max
    if most and count >= most and key not in state.distrusted and _replaceable(state, worker):
        state.distrusted.add(key)
        state.dirty = True


def _replaceable(state: State, worker: Worker) -> bool:
    """Whether other connected workers offer all engines that this one offers."""
    others = [w for w in state.workers.values() if w is not worker and state.takes_work(w)]
    return all(
        any(w.shape.engines.get(engine) == versions for w in others)
        for engine, versions in worker.shape.engines.items()
    )
