"""The latency and the share of late replies of a service at several loads, by simulation.

The simulation calls the functions that routers and hubs call: requests go to the least loaded
replica, and an idle replica runs the largest batch that can be in time. A late request is served
behind all others, so that its latency counts.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

import msgspec

from flowmesh_core.serving.plan.capacity import PlannedReplica
from flowmesh_core.serving.queue.batching import form_batch
from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_core.serving.route.replica_choice import Candidate, choose_replica

_PATH = ""
"""All replicas of a stage answer the same."""


class PlannedStage(msgspec.Struct, frozen=True):
    """A stage of a service and the replicas of its component.

    Attributes:
        handoff_s: what passing a result to the next stage takes.
    """

    replicas: tuple[PlannedReplica, ...]
    handoff_s: float = 0.0

    @property
    def alone_s(self) -> float:
        """The least time of a call."""
        return min(r.profile.at(1) / r.share for r in self.replicas)


class LoadPoint(msgspec.Struct, frozen=True):
    """One point of a capacity curve.

    Attributes:
        p50_s: the median latency; ``p99_s`` the 99th percentile.
        miss_rate: the share of replies after the target.
    """

    p50_s: float
    p99_s: float
    miss_rate: float


def simulate_load(
    stages: Sequence[PlannedStage], arrivals_s: Sequence[float], latency_s: float
) -> LoadPoint:
    """Simulates a service at one load.

    Args:
        stages: in the order in which a request visits them; at least one, each with replicas.
        arrivals_s: of requests, ascending; at least one.
        latency_s: the target.
    """
    latencies = sorted(_Simulation(stages, arrivals_s, latency_s).run())
    late = sum(latency > latency_s * (1 + 1e-9) for latency in latencies)
    return LoadPoint(
        latencies[len(latencies) // 2],
        latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)],
        late / len(latencies),
    )


class _Simulation:
    """Requests on their way through the stages, in virtual time."""

    def __init__(
        self, stages: Sequence[PlannedStage], arrivals_s: Sequence[float], latency_s: float
    ) -> None:
        self._stages = stages
        self._arrivals_s = arrivals_s
        self._latency_s = latency_s
        self._rest_s = [
            sum(s.handoff_s + s.alone_s for s in stages[n + 1 :]) for n in range(len(stages))
        ]
        self._queues: list[list[dict[int, float]]] = [[{} for _ in s.replicas] for s in stages]
        self._running: list[list[list[int]]] = [[[] for _ in s.replicas] for s in stages]
        self._numbers = count()
        self._events: list[tuple[float, int, int, int]] = []
        """Time, order, stage, and a request that arrives, or -1 less a replica that is done."""

    def run(self) -> list[float]:
        """Returns the latency of each request that was answered: of all of them."""
        latencies = []
        for request, at in enumerate(self._arrivals_s):
            self._schedule(at, 0, request)
        while self._events:
            now, _, stage, what = heappop(self._events)
            if what >= 0:
                replica = self._enqueue(stage, what, now)
            else:
                replica = -1 - what
                done, self._running[stage][replica] = self._running[stage][replica], []
                after = now + self._stages[stage].handoff_s
                if stage + 1 == len(self._stages):
                    latencies += [after - self._arrivals_s[request] for request in done]
                else:
                    for request in done:
                        self._schedule(after, stage + 1, request)
            self._start(stage, replica, now)
        return latencies

    def _schedule(self, at: float, stage: int, what: int) -> None:
        heappush(self._events, (at, next(self._numbers), stage, what))

    def _enqueue(self, stage: int, request: int, now: float) -> int:
        running, queues = self._running[stage], self._queues[stage]
        replicas = [
            Candidate(str(n), (_PATH,), r.cap, len(running[n]) + len(queues[n]))
            for n, r in enumerate(self._stages[stage].replicas)
        ]
        chosen = choose_replica(replicas, _PATH, request=str(request))
        assert chosen is not None, "a planned stage has replicas"
        self._queues[stage][int(chosen.replica_id)][request] = now
        return int(chosen.replica_id)

    def _start(self, stage: int, replica: int, now: float) -> None:
        queue = self._queues[stage][replica]
        if self._running[stage][replica] or not queue:
            return
        planned = self._stages[stage].replicas[replica]
        waiting = [
            WaitingCall(
                str(request),
                self._arrivals_s[request] + self._latency_s,
                rest_s=self._rest_s[stage] + self._stages[stage].handoff_s,
            )
            for request in queue
        ]
        formed = form_batch(waiting, planned.profile, planned.cap, 0.0, now)
        batch = [int(c.id) for c in formed.calls or formed.late[: planned.cap]]
        for request in batch:
            del queue[request]
        self._running[stage][replica] = batch
        seconds = planned.profile.at(len(batch)) / planned.share
        self._schedule(now + seconds, stage, -1 - replica)
