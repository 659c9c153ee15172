"""The rental bound: what workers of one class of devices cost if no run ever waits.

Runs take their zero-wait latency, so a worker has to be there whenever one is in progress, however
many there are. It is also paid in each gap, but for no longer than starting it again takes, and for
its first start; starts are ahead of the run that needs them, and weights are on the disk. A policy
may pay less only where its runs take longer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.messages import Assignment
from flowmesh_sim.models.devices import Device, HardwareCatalog
from flowmesh_sim.models.library import library_of
from flowmesh_sim.models.work_model import WorkModel
from flowmesh_sim.paper.bound import HOUR_S, RunTimes, least_of, zero_wait_runs
from flowmesh_sim.paper.observer import StepTrace


@dataclass(frozen=True, slots=True)
class RestartTime:
    """The seconds until a worker that is not there runs its first action.

    Attributes:
        pod_s: until the machine runs; not paid.
        agent_s: start of the agent, ``process_s`` of the engine's process; ``load_s`` reads the
            weights from the disk, ``capture_s`` compiles and captures graphs.
    """

    pod_s: float = 0.0
    agent_s: float = 0.0
    process_s: float = 0.0
    load_s: float = 0.0
    capture_s: float = 0.0

    @property
    def paid_s(self) -> float:
        """The part in which the worker is paid for."""
        return self.agent_s + self.process_s + self.load_s + self.capture_s


@dataclass(frozen=True, slots=True)
class BusyRun:
    """When a run is in progress, and the start of a worker that it would have to wait for."""

    start_s: float
    end_s: float
    restart: RestartTime


@dataclass(frozen=True, slots=True)
class RentedTime:
    """The seconds in which the one worker is paid for.

    Attributes:
        running_s: while a run is in progress.
        idle_s: in gaps that are shorter than a start; ``starts_s`` of all other starts, of which
            there are ``starts``.
    """

    running_s: float = 0.0
    idle_s: float = 0.0
    starts_s: float = 0.0
    starts: int = 0

    @property
    def total_s(self) -> float:
        """All of them."""
        return self.running_s + self.idle_s + self.starts_s


@dataclass(frozen=True, slots=True)
class RentalBound:
    """The least bill of one class of devices without waiting, and the latency that goes with it.

    Attributes:
        latency_s: mean over the runs.
        usd: the bill; at least that of the work in full batches.
        usd_by_share: the bill if starts took this share of their time.
        restart: of the run whose start takes longest.
    """

    latency_s: float
    usd: float
    usd_by_share: Mapping[float, float]
    rented: RentedTime
    restart: RestartTime


def rented_time(runs: Sequence[BusyRun], share: float = 1.0) -> RentedTime:
    """Returns when a worker is paid for that is there whenever a run is in progress.

    Args:
        runs: in any order.
        share: of the time that starts take.
    """
    running_s = idle_s = starts_s = 0.0
    starts, until_s = 0, -inf
    for run in sorted(runs, key=lambda r: (r.start_s, -r.restart.paid_s)):
        if run.end_s <= run.start_s:
            continue
        gap_s, restart_s = run.start_s - until_s, share * run.restart.paid_s
        if gap_s > restart_s:
            starts_s += restart_s
            starts += 1
        else:
            idle_s += max(0.0, gap_s)
        running_s += max(0.0, run.end_s - max(run.start_s, until_s))
        until_s = max(until_s, run.end_s)
    return RentedTime(running_s, idle_s, starts_s, starts)


def rental_bound(
    first: Mapping[ActionKey, Assignment],
    traces: Mapping[str, list[StepTrace]],
    submitted_s: Mapping[str, float],
    hardware: HardwareCatalog,
    duties: WorkModel,
    device: Device,
    *,
    concurrent: int = 0,
    shares: Sequence[float] = (),
) -> RentalBound | None:
    """Returns the rental bound of a class of devices; None if some action does not fit on it.

    Args:
        first: an assignment of every executed action.
        traces: steps of every run, parents first.
        submitted_s: of every run.
        hardware: the constants.
        duties: the work of an assignment.
        device: the class.
        concurrent: runs at a time of a closed loop, which then goes at the bound's pace.
        shares: of the time of starts, for ``usd_by_share``.
    """
    known = least_of(dict(first), hardware, duties, [device.name])
    if any(x.alone_s == inf for x in known.values()):
        return None
    least = {key: replace(x, ready_s=0.0) for key, x in known.items()}
    runs = zero_wait_runs(least, traces, submitted_s, concurrent)
    busy = [_busy_run(run, first, hardware, duties, device) for run in runs]
    price_usd_s = float(device.facts.price_usd_h) / HOUR_S
    work_s = sum(x.device_s for x in least.values())

    def usd(share: float) -> float:
        return price_usd_s * max(rented_time(busy, share).total_s, work_s)

    return RentalBound(
        latency_s=sum(run.end_s - run.start_s for run in runs) / max(1, len(runs)),
        usd=usd(1.0),
        usd_by_share={share: usd(share) for share in shares},
        rented=rented_time(busy),
        restart=max((b.restart for b in busy), key=lambda r: r.paid_s, default=RestartTime()),
    )


def _busy_run(
    run: RunTimes,
    first: Mapping[ActionKey, Assignment],
    hardware: HardwareCatalog,
    duties: WorkModel,
    device: Device,
) -> BusyRun:
    restarts = [_restart(first[key], hardware, duties, device) for key in run.first]
    slowest = max(restarts, key=lambda r: r.paid_s, default=RestartTime())
    return BusyRun(run.start_s, run.end_s, slowest)


def _restart(
    a: Assignment, hardware: HardwareCatalog, duties: WorkModel, device: Device
) -> RestartTime:
    times = hardware.facts.group("provisioning")
    process_s, load_s = duties.start_s(a, device)
    loads_model = duties.model_of(a) is not None
    capture_s = device.start.capture_s if loads_model and library_of(a.engine) == "vllm" else 0.0
    return RestartTime(
        float(times.pod_s), float(times.agent_s), process_s, load_s - capture_s, float(capture_s)
    )


def envelope(points: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    """Returns those of the points (dollars, seconds) that no other is better than in both."""
    return {
        name: (usd, seconds)
        for name, (usd, seconds) in points.items()
        if not any(
            u <= usd and s <= seconds and (u, s) != (usd, seconds) for u, s in points.values()
        )
    }
