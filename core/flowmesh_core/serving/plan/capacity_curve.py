"""The latency and the share of late replies of a service at several loads, by simulation.

The simulation calls the functions that routers and component hosts call: requests go to the least
loaded replica, and an idle replica runs the largest batch that leaves later stages their time. A
late request is served behind all others, so that its latency counts. Replicas of one host run one
batch at a time, that which has waited longest first. A call
of an engine begins while others run, and is taken to last as it would if their number stayed.
"""

import math
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import accumulate, count

import msgspec
from blake3 import blake3

from flowmesh_core.serving.plan.capacity import PlannedReplica
from flowmesh_core.serving.queue.batching import form_batch
from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_core.serving.route.replica_choice import Candidate, choose_replica

LOADS = (0.2, 0.4, 0.6, 0.8, 0.95)
"""The loads of a curve, as shares of the best rate."""
REQUESTS = 400
"""Requests of one load; fewer where a request passes many replicas, so that it takes no longer."""
_REPLICAS = 20_000
_REQUESTS_LEAST = 50
_WORD = 1 << 64
_ARRIVAL = -1
_PATH = ""
"""All replicas of a stage answer the same."""


class PlannedStage(msgspec.Struct, frozen=True):
    """A stage of a service and the replicas of its component.

    Attributes:
        handoff_s: what passing a result to the next stage takes.
        component: of the service, which may have several stages; empty for one of its own.
    """

    replicas: tuple[PlannedReplica, ...]
    handoff_s: float = 0.0
    component: str = ""

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


def capacity_curve(
    stages: Sequence[PlannedStage], latency_s: float
) -> Iterator[tuple[float, LoadPoint]]:
    """Yields the points of a curve: requests a second, ascending, and what becomes of them.

    Args:
        stages: as of :func:`simulate_load`.
        latency_s: the target; infinite for none.
    """
    best = best_rate_per_s(stages)
    passed = sum(len(stage.replicas) for stage in stages)
    requests = max(_REQUESTS_LEAST, min(REQUESTS, _REPLICAS // passed))
    for load in LOADS:
        arrivals_s = poisson_arrivals(load * best, requests)
        yield load * best, simulate_load(stages, arrivals_s, latency_s)


def best_rate_per_s(stages: Sequence[PlannedStage]) -> float:
    """Returns the requests a second with which the busiest host or stage is just always busy."""
    busy_s: dict[str, float] = {}
    for number, stage in enumerate(stages):
        rate = sum(r.calls_per_s for r in stage.replicas)
        for replica, one in enumerate(stage.replicas):
            host = one.host or f"{number}/{replica}"
            busy_s[host] = busy_s.get(host, 0.0) + 1 / rate  # it gets its part of the calls
    return 1 / max(busy_s.values())


def poisson_arrivals(rate_per_s: float, requests: int) -> list[float]:
    """Returns times of requests that come independently of each other; the same each time."""
    stream = blake3(b"arrivals").digest(8 * requests)
    draws = (int.from_bytes(stream[n : n + 8], "big") for n in range(0, len(stream), 8))
    return list(accumulate(-math.log((draw + 1) / _WORD) / rate_per_s for draw in draws))


class _Simulation:
    """Requests on their way through the stages, in virtual time."""

    def __init__(
        self, stages: Sequence[PlannedStage], arrivals_s: Sequence[float], latency_s: float
    ) -> None:
        self._stages = stages
        self._arrivals_s = arrivals_s
        self._latency_s = latency_s
        self._after = [_visits_and_rest(stages[n:]) for n in range(len(stages))]
        self._queues: list[list[dict[int, float]]] = [[{} for _ in s.replicas] for s in stages]
        self._running: list[list[list[int]]] = [[[] for _ in s.replicas] for s in stages]
        self._busy: set[str] = set()
        self._by_host: dict[str, list[tuple[int, int]]] = {}
        for stage, planned in enumerate(stages):
            for replica, one in enumerate(planned.replicas):
                if one.host:
                    self._by_host.setdefault(one.host, []).append((stage, replica))
        self._numbers = count()
        self._events: list[tuple[float, int, int, int, list[int]]] = []
        """Time, order, stage, replica, and the requests that are done there; -1 where they come."""

    def run(self) -> list[float]:
        """Returns the latency of each request that was answered: of all of them."""
        latencies = []
        for request, at in enumerate(self._arrivals_s):
            self._schedule(at, 0, _ARRIVAL, [request])
        while self._events:
            now, _, stage, replica, requests = heappop(self._events)
            if replica == _ARRIVAL:
                replica = self._enqueue(stage, requests[0], now)
            else:
                self._end(stage, replica, requests)
                after = now + self._stages[stage].handoff_s
                if stage + 1 == len(self._stages):
                    latencies += [after - self._arrivals_s[request] for request in requests]
                else:
                    for request in requests:
                        self._schedule(after, stage + 1, _ARRIVAL, [request])
            for place in self._startable(stage, replica):
                self._start(*place, now)
        return latencies

    def _schedule(self, at: float, stage: int, replica: int, requests: list[int]) -> None:
        heappush(self._events, (at, next(self._numbers), stage, replica, requests))

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

    def _end(self, stage: int, replica: int, requests: list[int]) -> None:
        running = self._running[stage][replica]
        self._running[stage][replica] = [r for r in running if r not in requests]
        self._busy.discard(self._stages[stage].replicas[replica].host)

    def _startable(self, stage: int, replica: int) -> list[tuple[int, int]]:
        """Returns what may start: of a shared host that is idle, the longest waiting first."""
        host = self._stages[stage].replicas[replica].host
        if not host:
            return [(stage, replica)]
        found = [place for place in self._by_host[host] if self._queues[place[0]][place[1]]]
        return sorted(found, key=lambda place: min(self._queues[place[0]][place[1]].values()))

    def _start(self, stage: int, replica: int, now: float) -> None:
        queue, running = self._queues[stage][replica], self._running[stage][replica]
        planned = self._stages[stage].replicas[replica]
        if planned.is_continuous:
            while queue and len(running) < planned.cap:
                self._run([min(queue)], len(running) + 1, stage, replica, now)
        elif queue and not running and planned.host not in self._busy:
            batch = self._batch(stage, replica, now)
            self._run(batch, len(batch), stage, replica, now)
            if planned.host:
                self._busy.add(planned.host)

    def _batch(self, stage: int, replica: int, now: float) -> list[int]:
        planned = self._stages[stage].replicas[replica]
        visits, rest_s = self._after[stage]
        waiting = [
            WaitingCall(str(request), self._arrivals_s[request] + self._latency_s, visits, rest_s)
            for request in self._queues[stage][replica]
        ]
        formed = form_batch(waiting, planned.profile, planned.cap, 0.0, now)
        return [int(c.id) for c in formed.calls or formed.late[: planned.cap]]

    def _run(self, batch: list[int], size: int, stage: int, replica: int, now: float) -> None:
        for request in batch:
            del self._queues[stage][replica][request]
        self._running[stage][replica] += batch
        planned = self._stages[stage].replicas[replica]
        seconds = planned.profile.at(size) * planned.length_of(batch[0]) / planned.share
        self._schedule(now + seconds, stage, replica, batch)


def _visits_and_rest(stages: Sequence[PlannedStage]) -> tuple[int, float]:
    """Returns how often the component of the first stage is called, and the least time beside."""
    first, *after = stages
    others = [s for s in after if not first.component or s.component != first.component]
    rest_s = sum(s.handoff_s for s in stages) + sum(s.alone_s for s in others)
    return len(stages) - len(others), rest_s
