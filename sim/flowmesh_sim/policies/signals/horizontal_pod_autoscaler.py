"""A HorizontalPodAutoscaler of Kubernetes on queue depth: the FlowMesh paper's own rule.

The algorithm is that of the documentation of Kubernetes
(https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/, "Algorithm details",
"Stabilization window" and "Default behavior") for an external metric with the target type
``AverageValue``, and with ``minReplicas: 0``, which external metrics allow (the feature gate
``HPAScaleToZero``).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil, inf
from typing import TYPE_CHECKING

from flowmesh_core.fleet.snapshot import Snapshot
from flowmesh_core.machine.fleet_snapshot import snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.placement.constraints import unmet
from flowmesh_sim.policies.signals.signal import ScaledPool, SignalDecision, WantedSize

if TYPE_CHECKING:
    from flowmesh_core.units import Digest

SYNC_PERIOD_S = 15.0
"""``--horizontal-pod-autoscaler-sync-period``, by default."""
TOLERANCE = 0.1
"""``--horizontal-pod-autoscaler-tolerance``, by default."""
TARGET_ACTIONS = 8.0
"""Ready and running actions that a worker should have."""
ADDED_PODS, ADDED_TIMES = 4, 2
"""``behavior.scaleUp``, by default: 4 pods or 100 % more in 15 s, whichever is more."""


class HorizontalPodAutoscaler:
    """The autoscaler of one pool: from a metric to a number of workers.

    The defaults of ``behavior`` hold: it grows without a stabilization window, by 4 workers or to
    twice as many in each period, whichever is more; it shrinks to the largest number that it
    recommended in the last ``window_s`` seconds.
    """

    def __init__(
        self,
        *,
        target: float = TARGET_ACTIONS,
        tolerance: float = TOLERANCE,
        window_s: float = 300.0,
    ) -> None:
        """Starts without recommendations.

        Args:
            target: ``averageValue``: of the metric, for each worker.
            tolerance: share of the target within which nothing changes.
            window_s: ``scaleDown.stabilizationWindowSeconds``; 300 by default.
        """
        self._target = target
        self._tolerance = tolerance
        self._window_s = window_s
        self._recommended: list[tuple[float, int]] = []

    def recommend(self, metric: float, current: int) -> int:
        """Returns ceil(metric / target), or the current number within the tolerance."""
        if current == 0 and metric == 0.0:
            return 0
        ratio = metric / (self._target * current) if current else inf
        if 1.0 - self._tolerance <= ratio <= 1.0 + self._tolerance:
            return current
        return ceil(metric / self._target)

    def desire(
        self, metric: float, current: int, now_s: float, *, minimum: int, maximum: int
    ) -> int:
        """Returns the desired number of workers, stabilized and within its bounds.

        Args:
            metric: of the whole pool: its ready and running actions.
            current: workers that run or start.
            now_s: the time.
            minimum: ``minReplicas``.
            maximum: ``maxReplicas``.
        """
        if not minimum <= current <= maximum:
            return max(minimum, min(maximum, current))
        recommended = self.recommend(metric, current)
        self._recommended = [
            (t, n) for t, n in self._recommended if now_s - t < self._window_s and n > recommended
        ]
        self._recommended.append((now_s, recommended))
        desired = recommended
        if recommended < current:
            desired = min(current, max(n for _, n in self._recommended))
        desired = min(desired, max(current + ADDED_PODS, current * ADDED_TIMES))
        return max(minimum, min(maximum, desired))


class HpaSignal:
    """A HorizontalPodAutoscaler for each pool.

    The metric of a pool is the number of its ready and running actions. A ready action is counted
    in the cheapest pool whose workers meet its hard constraints (of equals, the first by name) and
    that has not as many as all workers it may have should have; a running one where it runs. The
    window is the pool's ``keep_alive_s``. Nothing is prewarmed.

    In its favour: where a pool shrinks, idle workers leave, and busy ones stay until they are idle;
    a Deployment would stop some of the busy ones, whose work is lost after the grace period.
    """

    every_s = SYNC_PERIOD_S

    def __init__(self) -> None:
        self._autoscalers: dict[str, HorizontalPodAutoscaler] = {}

    def decide(self, state: State, pools: Sequence[ScaledPool], now_s: float) -> SignalDecision:
        """Returns what each pool's autoscaler desires, and no fewer workers than are busy."""
        seen = snapshot(state, now_s)
        metric, busy = _actions(seen, pools), Counter[str]()
        for worker in seen.workers:
            busy[worker.shape.pool] += any(i.assigned for i in worker.instances.values())
        sizes = {}
        for pool in pools:
            if pool.is_scaled:
                desired = self._autoscaler(pool).desire(
                    metric[pool.name],
                    pool.current,
                    now_s,
                    minimum=pool.minimum,
                    maximum=pool.maximum,
                )
                workers = max(desired, min(pool.current, busy[pool.name]))
                sizes[pool.name] = WantedSize(workers, workers)
        return SignalDecision(sizes)

    def _autoscaler(self, pool: ScaledPool) -> HorizontalPodAutoscaler:
        new = HorizontalPodAutoscaler(window_s=pool.keep_alive_s)
        return self._autoscalers.setdefault(pool.name, new)


def _actions(seen: Snapshot, pools: Sequence[ScaledPool]) -> Mapping[str, int]:
    """Returns the ready and running actions of each pool, without what no pool can run."""
    found = Counter[str]()
    for worker in seen.workers:
        found[worker.shape.pool] += sum(i.assigned for i in worker.instances.values())
    by_price = sorted(pools, key=lambda p: (p.shape.price_nanousd_per_hour, p.name))
    able_of: dict[Digest, list[ScaledPool]] = {}
    for action in seen.ready:
        if action.not_before_s > seen.now_s:
            continue
        if action.signature not in able_of:
            requirement = seen.signatures[action.signature].requirement
            able_of[action.signature] = [
                p for p in by_price if p.maximum and unmet(requirement, p.shape) is None
            ]
        able = able_of[action.signature]
        room = (p for p in able if found[p.name] < TARGET_ACTIONS * p.maximum)
        if able:
            found[next(room, able[0]).name] += 1
    return found
