"""A lower bound on time and cost by relaxation: what no policy can beat in this simulator.

Time: every action runs alone on the device that is fastest for it as soon as its inputs are there,
on a fleet without end; equal actions run once; an engine with a base model is ready on some worker
no sooner than its weights can have come from the bucket, counted from the first second. Makespan of
a fleet: also no less than the device-seconds of all distinct actions, at the largest batch, spread
evenly. Cost: those device-seconds on the device where they are cheapest; starts, waits and idle
time cost nothing.
"""

from dataclasses import dataclass
from math import inf

from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.messages import Assignment
from flowmesh_sim.models.devices import GB, Device, HardwareCatalog, LanguageModel
from flowmesh_sim.models.work_model import HOST, SERVING, WorkItem, WorkModel
from flowmesh_sim.paper.observer import StepTrace

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class LowerBoundInput:
    """What an action takes at the very least.

    Attributes:
        alone_s: running time with a device to itself.
        device_s: device-seconds in a full batch; ``usd`` where that is cheapest.
        ready_s: when an engine for it can be ready at the earliest.
    """

    alone_s: float
    device_s: float
    usd: float
    ready_s: float


@dataclass(frozen=True, slots=True)
class LowerBound:
    """The bound of a simulation, given when its runs were submitted.

    Attributes:
        latency_s: mean over the runs.
        makespan_s: from the first submission to the last end, arrivals as they were.
        work_s: of the makespan of the fleet at hand if everything were submitted at once.
        usd: of everything.
    """

    latency_s: float
    makespan_s: float
    work_s: float
    usd: float


def bound_of(
    first: dict[ActionKey, Assignment],
    traces: dict[str, list[StepTrace]],
    submitted_s: dict[str, float],
    hardware: HardwareCatalog,
    duties: WorkModel,
    devices: dict[str, int],
) -> LowerBound:
    """The bound.

    Args:
        first: an assignment of every action that ran.
        traces: steps of every run, parents first.
        submitted_s: of every run.
        hardware: constants.
        duties: knows what an assignment takes.
        devices: name of a device → how many there are.
    """
    relaxed = _Relaxed(hardware, duties, list(devices))
    least = {key: relaxed.least(a) for key, a in first.items()}
    began_s = min(submitted_s.values(), default=0.0)
    latencies, last_s = _latencies(least, traces, submitted_s)
    _, longest_s = _latencies(least, traces, dict.fromkeys(submitted_s, began_s))
    volume_s = sum(x.device_s for x in least.values()) / max(1, sum(devices.values()))
    return LowerBound(
        latency_s=sum(latencies) / max(1, len(latencies)),
        makespan_s=last_s - began_s,
        work_s=max(volume_s, longest_s - began_s),
        usd=sum(x.usd for x in least.values()),
    )


def _latencies(
    least: dict[ActionKey, LowerBoundInput],
    traces: dict[str, list[StepTrace]],
    submitted_s: dict[str, float],
) -> tuple[list[float], float]:
    """Each run's latency, and the last end, on a fleet without end."""
    ended_s: dict[ActionKey, float] = {}
    latencies, last_s = [], 0.0
    for uid in sorted(traces, key=lambda uid: (submitted_s[uid], uid)):
        at_s: dict[str, float] = {}
        for step in traces[uid]:
            start_s = max([at_s[p] for p in step.parents], default=submitted_s[uid])
            end_s = start_s
            for key in step.actions:
                known = least.get(key)
                if known is not None:
                    own_s = max(start_s, known.ready_s) + known.alone_s
                    ended_s[key] = min(ended_s.get(key, inf), own_s)
                    end_s = max(end_s, ended_s[key])
            at_s[step.path] = end_s
        run_s = max(at_s.values(), default=submitted_s[uid])
        latencies.append(run_s - submitted_s[uid])
        last_s = max(last_s, run_s)
    return latencies, last_s


class _Relaxed:
    """What single actions take, each on its best device."""

    def __init__(self, hardware: HardwareCatalog, duties: WorkModel, devices: list[str]) -> None:
        self._hardware = hardware
        self._duties = duties
        self._devices = [hardware.devices[name] for name in devices]
        facts = hardware.facts
        self._bytes_per_s = facts.group("network").bucket_bytes_per_s

    def least(self, a: Assignment) -> LowerBoundInput:
        """The least over all devices that have the memory."""
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
        """Since the first second; 0 for an engine without a model, or with one that was made."""
        size = sum(a.inputs[p].artifact.size_bytes for p in a.components if p in a.inputs)
        if model is None or size != model.weights_bytes or self._made(a):
            return 0.0
        # A host may import its libraries while the weights come.
        process_s = self._duties.process_s
        load_s = self._duties.load_s(a, size, device) - process_s
        return float(max(size / self._bytes_per_s, process_s) + load_s)

    def _made(self, a: Assignment) -> bool:
        given = a.inputs.get("model")
        return given is not None and given.artifact.digest not in self._bases()

    def _bases(self) -> set[str]:
        contents = self._duties.contents
        models = self._hardware.models.values()
        return {contents.model(m.name, m.weights_bytes).digest for m in models}


def lone_s(device: Device, model: LanguageModel | None, duty: WorkItem) -> float:
    """Seconds of a duty that has the device to itself."""
    if duty.kind != SERVING or model is None:
        return duty.steps
    at_once = min(duty.sequences, float(device.serving.sequences_max))
    turn = at_once / duty.sequences
    step_s = device.decode_step_s(model, at_once, duty.context)
    return duty.steps * (step_s / turn + duty.prefill_s)


def full_s(device: Device, model: LanguageModel | None, duty: WorkItem) -> float:
    """Device-seconds of a duty as a part of the largest batch, whose weights are read once for all.

    A step of S sequences takes at least its bytes over the bandwidth and the engine's part; both
    over S are least at the most sequences that an engine runs at once.
    """
    if duty.kind != SERVING or model is None:
        return duty.steps
    f, most = device.facts, float(device.serving.sequences_max)
    read = model.facts.read_gb * GB / most + duty.context * model.facts.kv_bytes
    token_s = read / (f.decode_share * f.bandwidth_gb_s * GB)
    token_s += device.serving.step_s / most + device.serving.step_s_per_sequence
    return float(duty.steps * (duty.sequences * token_s + duty.prefill_s))
