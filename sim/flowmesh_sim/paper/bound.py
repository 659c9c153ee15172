"""Computes lower bounds on time and cost that no policy can beat in this simulator.

The bounds relax the problem. Time: every action runs alone on its fastest device as soon as its
inputs exist, on an unlimited number of workers; equal actions run once; an engine with a base model
is not ready before its weights can be fetched from the bucket, counted from the first second.
Makespan of the given workers: also at least the device-seconds of all distinct actions, at the
largest batch, divided evenly. Cost: those device-seconds on their cheapest device; starts, waits
and idle time are free. In a closed loop the next run comes when one has ended at this pace.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf

from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.messages import Assignment
from flowmesh_sim.models.devices import GB, Device, HardwareCatalog, LanguageModel
from flowmesh_sim.models.download_rates import fastest_downloads
from flowmesh_sim.models.work_model import HOST, SERVING, WorkItem, WorkModel
from flowmesh_sim.paper.observer import StepTrace

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class LowerBoundInput:
    """The minimum time and cost of an action.

    Attributes:
        alone_s: running time alone on a device.
        device_s: device-seconds in a full batch; ``usd`` on the cheapest device.
        ready_s: the earliest time at which an engine for it can be ready.
    """

    alone_s: float
    device_s: float
    usd: float
    ready_s: float


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The lower bound of a simulation with given submission times.

    Attributes:
        latency_s: mean over the runs.
        makespan_s: from the first submission to the last end, with the actual arrivals.
        work_s: of the makespan on the given workers if everything were submitted at once.
        closed_s: of the same if only ``concurrent`` runs are submitted at a time.
        usd: of all actions.
    """

    latency_s: float
    makespan_s: float
    work_s: float
    closed_s: float
    usd: float


def bound_of(
    first: dict[ActionKey, Assignment],
    traces: dict[str, list[StepTrace]],
    submitted_s: dict[str, float],
    hardware: HardwareCatalog,
    duties: WorkModel,
    devices: dict[str, int],
    concurrent: int = 0,
) -> LowerBound:
    """Returns the lower bound of a simulation.

    Args:
        first: an assignment of every executed action.
        traces: steps of every run, parents first.
        submitted_s: of every run.
        hardware: the constants.
        duties: the work of an assignment.
        devices: the number of devices by name.
        concurrent: runs at a time of a closed loop; 0 for none.
    """
    least = least_of(first, hardware, duties, list(devices))
    began_s = min(submitted_s.values(), default=0.0)
    runs = zero_wait_runs(least, traces, submitted_s)
    at_once = zero_wait_runs(least, traces, dict.fromkeys(submitted_s, began_s))
    closed = zero_wait_runs(least, traces, submitted_s, concurrent or len(traces))
    volume_s = sum(x.device_s for x in least.values()) / max(1, sum(devices.values()))
    return LowerBound(
        latency_s=sum(run.end_s - run.start_s for run in runs) / max(1, len(runs)),
        makespan_s=max((run.end_s for run in runs), default=began_s) - began_s,
        work_s=max(volume_s, max((run.end_s for run in at_once), default=began_s) - began_s),
        closed_s=max(volume_s, max((run.end_s for run in closed), default=began_s) - began_s),
        usd=sum(x.usd for x in least.values()),
    )


def least_of(
    first: dict[ActionKey, Assignment],
    hardware: HardwareCatalog,
    duties: WorkModel,
    devices: list[str],
) -> dict[ActionKey, LowerBoundInput]:
    """Returns the minimum of every action over these classes of devices."""
    relaxed = _Relaxed(hardware, duties, devices)
    return {key: relaxed.least(a) for key, a in first.items()}


@dataclass(frozen=True, slots=True)
class RunTimes:
    """When a run is submitted and ends that waits for nothing.

    Attributes:
        first: the actions of its first steps that had not ended before it.
    """

    start_s: float
    end_s: float
    first: tuple[ActionKey, ...]


def zero_wait_runs(
    least: Mapping[ActionKey, LowerBoundInput],
    traces: Mapping[str, list[StepTrace]],
    submitted_s: Mapping[str, float],
    concurrent: int = 0,
) -> list[RunTimes]:
    """Returns the times of runs on an unlimited number of workers, in order of submission.

    Args:
        least: the minimum of every action; equal actions run once.
        traces: steps of every run, parents first.
        submitted_s: of every run; in a closed loop only the first moment counts.
        concurrent: runs at a time of a closed loop, in which the next one, by name, is submitted
            when one has ended; 0 for none.
    """
    ended_s: dict[ActionKey, float] = {}
    ends: list[float] = []
    found = []
    began_s = min(submitted_s.values(), default=0.0)
    order = sorted(traces, key=lambda uid: (0.0 if concurrent else submitted_s[uid], uid))
    for number, uid in enumerate(order):
        start_s = submitted_s[uid]
        if concurrent:
            start_s = began_s if number < concurrent else heappop(ends)
        roots = [key for step in traces[uid] if not step.parents for key in step.actions]
        first = tuple(k for k in roots if k in least and ended_s.get(k, inf) > start_s)
        end_s = _end_s(least, traces[uid], start_s, ended_s)
        heappush(ends, end_s)
        found.append(RunTimes(start_s, end_s, first))
    return found


def _end_s(
    least: Mapping[ActionKey, LowerBoundInput],
    steps: list[StepTrace],
    start_s: float,
    ended_s: dict[ActionKey, float],
) -> float:
    """Returns when a run ends; adds its actions to ``ended_s``."""
    at_s: dict[str, float] = {}
    for step in steps:
        ready_s = max([at_s[p] for p in step.parents], default=start_s)
        end_s = ready_s
        for key in step.actions:
            known = least.get(key)
            if known is not None:
                own_s = max(ready_s, known.ready_s) + known.alone_s
                ended_s[key] = min(ended_s.get(key, inf), own_s)
                end_s = max(end_s, ended_s[key])
        at_s[step.path] = end_s
    return max(at_s.values(), default=start_s)


class _Relaxed:
    """Computes the minimum of single actions, each on its best device."""

    def __init__(self, hardware: HardwareCatalog, duties: WorkModel, devices: list[str]) -> None:
        self._hardware = hardware
        self._duties = duties
        self._devices = [hardware.devices[name] for name in devices]
        facts = hardware.facts
        self._downloads = fastest_downloads(facts)

    def least(self, a: Assignment) -> LowerBoundInput:
        """Returns the minimum over all devices with enough memory."""
        model = self._duties.model_of(a)
        alone_s, device_s, usd, ready_s = inf, inf, inf, inf
        for device in self._devices:
            duty = self._duties.of(a, device)
            if duty.peak_mib > device.memory_mib:
                continue
            seconds = 0.0 if duty.kind == HOST else full_s(device, model, duty)
            alone_s = min(alone_s, lone_s(device, model, duty))
            device_s = min(device_s, seconds)
            usd = min(usd, seconds * float(device.facts.price_usd_h) / HOUR_S)
            ready_s = min(ready_s, self._ready_s(a, device, model))
        return LowerBoundInput(alone_s, device_s, usd, ready_s)

    def _ready_s(self, a: Assignment, device: Device, model: LanguageModel | None) -> float:
        """Returns the earliest ready time; 0 without a base model that must be fetched."""
        size = sum(a.inputs[p].artifact.size_bytes for p in a.components if p in a.inputs)
        if model is None or size != model.weights_bytes or self._is_trained(a):
            return 0.0
        # A host may import its libraries while the weights are fetched.
        process_s = self._duties.process_s
        load_s = self._duties.load_s(a, size, device) - process_s
        return max(self._downloads.seconds(size), process_s) + load_s

    def _is_trained(self, a: Assignment) -> bool:
        given = a.inputs.get("model")
        return given is not None and given.artifact.digest not in self._bases()

    def _bases(self) -> set[str]:
        contents = self._duties.contents
        models = self._hardware.models.values()
        return {contents.model(m.name, m.weights_bytes).digest for m in models}


def lone_s(device: Device, model: LanguageModel | None, duty: WorkItem) -> float:
    """Returns the seconds of work alone on a device."""
    if duty.kind != SERVING or model is None:
        return duty.steps
    at_once = min(duty.sequences, device.sequences_max)
    share = at_once / duty.sequences
    step_s = device.decode_step_s(model, at_once, duty.context)
    return duty.steps * (step_s / share + duty.prefill_s)


def full_s(device: Device, model: LanguageModel | None, duty: WorkItem) -> float:
    """Returns the device-seconds of work in the largest batch, which reads the weights once.

    A step of S sequences takes at least its bytes over the bandwidth plus the engine's overhead;
    per sequence, both are smallest at the largest S that an engine supports.
    """
    if duty.kind != SERVING or model is None:
        return duty.steps
    f, most = device.facts, device.sequences_max
    read = model.facts.read_gb * GB / most + duty.context * model.facts.kv_bytes
    token_s = read / (f.decode_share * f.bandwidth_gb_s * GB)
    token_s += device.serving.step_s / most + device.serving.step_s_per_sequence
    return float(duty.steps * (duty.sequences * token_s + duty.prefill_s))
