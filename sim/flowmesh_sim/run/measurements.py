"""What is measured of a simulation from outside: waits, latencies, use, energy, money."""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from flowmesh_api.v1.enums import Phase
from flowmesh_api.v1.runs import RunStatus
from flowmesh_core.machine.commands import Assign
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.units import NANO_PER_USD

if TYPE_CHECKING:
    from collections.abc import Callable

    from flowmesh_sim.control.control import SimulatedControlPlane
    from flowmesh_sim.workers.worker import SimWorker


@dataclass(frozen=True, slots=True)
class RunMeasurements:
    """One run.

    Attributes:
        queued_s: from its submission until something of it ran; its latency where nothing had to.
    """

    uid: str
    tenant: str
    phase: str
    submitted_s: float
    ended_s: float
    latency_s: float
    queued_s: float
    paid_usd: float
    executed: int
    hits: int


@dataclass(frozen=True, slots=True)
class MeasuredMoment:
    """A moment, for plots."""

    time_s: float
    workers: int
    ready: int
    running: int
    runs: int


@dataclass(slots=True)
class SimulationResult:
    """What a simulation gives.

    Attributes:
        makespan_s: from the first submission until the last run ended.
        queueing_s: mean, p50 and p99 of the runs' ``queued_s``; ``waiting_s`` that of actions
            from ready to running.
        utilisation: share of the workers' lifetimes in which something ran.
        tasks_per_min: steps that ended, hits included, over the makespan; ``executed_per_min``
            those that had to run.
        events_per_s: events of the simulation per second of the machine that computed it.
    """

    scenario: str
    seed: int
    policy: str
    runs: int
    succeeded: int
    failed: int
    cancelled: int
    makespan_s: float
    latency_s: dict[str, float]
    queueing_s: dict[str, float]
    waiting_s: dict[str, float]
    usd: float
    receipts_usd: float
    fabric_usd: float
    joules: float
    executed: int
    hits: dict[str, int]
    utilisation: float
    worker_hours: float
    tasks_per_min: float
    executed_per_min: float
    runs_per_min: float
    events: int
    decisions: int
    epochs: int
    lost_workers: int
    trace: str
    took_s: float = 0.0
    events_per_s: float = 0.0
    every: list[RunMeasurements] = field(default_factory=list)
    samples: list[MeasuredMoment] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain values; without the samples."""
        found = asdict(self)
        del found["samples"]
        return found


class Measures:
    """Gathers while the simulation goes on.

    Attributes:
        workers: every worker that ever was.
        lost: of them, those that ended without a goodbye.
        spoil: asked of each attempt that did its work whether it fails all the same.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.now_s: Callable[[], float] = lambda: 0.0
        self.wall_s: Callable[[], float] = lambda: 0.0
        self.workers: list[SimWorker] = []
        self.lost = 0
        self.spoil: Callable[[str], FailureReport | None] = lambda _: None
        self.samples: list[MeasuredMoment] = []
        self.statuses: dict[str, tuple[RunStatus, float]] = {}
        self.waits_s: list[float] = []
        self.first_run_s: dict[str, float] = {}
        self._assigned: dict[str, tuple[float, tuple[str, ...]]] = {}

    def assigned(self, control: "SimulatedControlPlane", command: Assign) -> None:
        """An attempt was dispatched."""
        a = command.assignment
        # Not by state.actions: it may have ended in the turn that dispatched it.
        action = control.machine.state.attempts[a.attempt_id].action
        waited_s = control.now_s() - action.ready_s
        self._assigned[a.attempt_id] = (self.now_s() - waited_s, a.run_uids)

    def began(self, attempt_id: str) -> None:
        """As :meth:`Observer.began`."""
        ready_s, uids = self._assigned.pop(attempt_id, (-1.0, ()))
        if ready_s >= 0.0:
            now_s = self.now_s()
            self.waits_s.append(now_s - ready_s)
            for uid in uids:
                self.first_run_s.setdefault(uid, now_s)

    def spoils(self, attempt_id: str) -> FailureReport | None:
        """As :meth:`Observer.spoils`."""
        return self.spoil(attempt_id)

    def ended(self, uid: str, status: RunStatus) -> None:
        """A run has its verdict."""
        self.statuses[uid] = (status, self.now_s())

    def figures(self, wanted: dict[str, float]) -> list[RunMeasurements]:
        """Every run that ended, in order of submission."""
        found = []
        for uid, submitted_s in wanted.items():
            if uid not in self.statuses:
                continue
            status, ended_s = self.statuses[uid]
            first_s = self.first_run_s.get(uid, ended_s)
            found.append(
                RunMeasurements(
                    uid=uid,
                    tenant=status.namespace,
                    phase=status.phase,
                    submitted_s=submitted_s,
                    ended_s=ended_s,
                    latency_s=ended_s - submitted_s,
                    queued_s=min(first_s, ended_s) - submitted_s,
                    paid_usd=status.paid_nanousd / NANO_PER_USD,
                    executed=status.executed,
                    hits=status.hits,
                )
            )
        return found


def spread(values: list[float]) -> dict[str, float]:
    """Mean, median and p99; zeros where there are no values."""
    if not values:
        return {"mean": 0.0, "p50": 0.0, "p99": 0.0}
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "mean": sum(ordered) / len(ordered),
        "p50": ordered[last // 2],
        "p99": ordered[min(last, int(0.99 * len(ordered)))],
    }


def phases(figures: list[RunMeasurements]) -> dict[str, int]:
    """How many runs ended how."""
    return {
        p: sum(f.phase == p for f in figures)
        for p in (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)
    }
