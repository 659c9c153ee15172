"""The scenario file: pools, load, faults and settings, validated before a simulation starts.

Read by ``fmesh simulate``, the soak test and the evaluation.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from flowmesh_api.v1.problems import Problem
from flowmesh_control.loop.event_loop import TICK_S
from flowmesh_core.errors import FailureKind, SpecError
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_core.units import DEFAULT_TRUST
from flowmesh_sim.kernel.constants import read_constants
from flowmesh_sim.policies import POLICIES
from flowmesh_sim.policies.signals import SIGNALS
from flowmesh_sim.workloads.group_a import GROUP_A
from flowmesh_sim.workloads.group_b import GROUP_B
from flowmesh_sim.workloads.workflow_shapes import SHAPES

GROUPS = {"group-a": GROUP_A, "group-b": GROUP_B}
"""Names of groups of shapes."""
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Dollars = Annotated[float, Field(ge=0, le=1e6)]


FaultKind = Literal[
    "crash",
    "preempt",
    "silence",
    "one-way",
    "cut",
    "partition",
    "twice",
    "overtaken",
    "worker-clock",
    "slow",
    "host-crash",
    "out-of-memory",
    "store-down",
    "store-errors",
    "store-slow",
    "store-race",
    "lose-blob",
    "damage-blob",
    "damage-result",
    "collect",
    "clock-step",
    "control-crash",
    "stale-leader",
    "engine-errors",
    "cancel",
    "amend",
    "hub-crash",
    "router-crash",
]
CALL_FAULTS = ("hub-crash", "router-crash")
"""Those that only services with calls notice."""


class ScenarioModel(BaseModel):
    """The base of the scenario's models; unknown fields are errors."""

    model_config = ConfigDict(
        extra="forbid", alias_generator=to_camel, frozen=True, validate_by_name=False
    )


class PoolSpec(ScenarioModel):
    """A pool of workers with one device class.

    Attributes:
        workers: the initial number, from the start or from ``after_s``; ``minimum`` and
            ``maximum`` limit autoscaling.
        machines: the available machines; further workers wait until one is free.
        devices: of each worker.
        autoscale: whether the scenario's signal changes the number of workers.
        stabilization_s: how long a worker that is no longer needed stays.
        prewarm: whether workers prewarm engines ahead of work, as on a cluster; a laptop's
            workers load engines on demand.
        trust: of its workers.
        spot: whether their provider may take them away, which placement counts; faults do so.
        start: how a worker starts: ``pod`` (image present), ``pull`` (image pulled) or ``lease``.
        disk: the disk of a new worker: empty (``fresh``), or that of a worker of this pool that
            was drained (``reused``), as with a paused machine or a volume claim.
    """

    name: str
    device: str
    workers: int = Field(default=1, ge=0)
    minimum: int = Field(default=0, ge=0)
    maximum: int = Field(default=0, ge=0)
    machines: int | None = Field(default=None, ge=0)
    devices: int = Field(default=1, ge=1)
    host_memory_mib: int = Field(default=131072, ge=1)
    cpus: int = Field(default=16, ge=1)
    price_usd_per_hour: Dollars | None = None
    trust: int = Field(default=DEFAULT_TRUST, ge=0, le=3)
    engines: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    zone: str = "a"
    spot: bool = False
    autoscale: bool = False
    prewarm: bool = True
    target_s: Positive = 60.0
    stabilization_s: Positive = 120.0
    start: Literal["pod", "pull", "lease"] = "pod"
    disk: Literal["fresh", "reused"] = "fresh"
    latency_s: NotNegative | None = None
    after_s: NotNegative = 0.0

    @model_validator(mode="after")
    def _bounds(self) -> "PoolSpec":
        known = read_constants().names("devices")
        if self.device not in known:
            raise ValueError(f"device: no device {self.device!r}{did_you_mean(self.device, known)}")
        most = self.maximum or self.workers
        if self.autoscale and not self.minimum <= self.workers <= most:
            raise ValueError("workers must lie between minimum and maximum")
        return self


class Arrivals(ScenarioModel):
    """When runs are submitted.

    Attributes:
        kind: ``at-once``; ``every``, evenly at ``perMinute``; ``poisson`` at that rate;
            ``decaying`` exponentially from ``perMinute`` to ``toPerMinute`` over all runs;
            ``diurnal`` between ``toPerMinute`` at night, where it begins, and ``perMinute`` half a
            ``periodS`` later; ``closed``: ``concurrent`` runs at a time, the next one when one has
            ended.
    """

    kind: Literal["at-once", "every", "poisson", "decaying", "diurnal", "closed"] = "at-once"
    per_minute: Positive = 6.0
    to_per_minute: Positive = 0.6
    period_s: Positive = 86400.0
    concurrent: int = Field(default=64, ge=1)
    after_s: NotNegative = 0.0

    @model_validator(mode="after")
    def _falls(self) -> "Arrivals":
        if self.kind in ("decaying", "diurnal") and self.to_per_minute >= self.per_minute:
            raise ValueError("toPerMinute must be less than perMinute")
        return self


class LoadSpec(ScenarioModel):
    """Runs of some workflow shapes.

    Attributes:
        shapes: names of ``workflow_shapes``, or ``group-a`` and ``group-b``; sampled uniformly.
        rows: of a step that works on rows; ``batch`` in the paper.
        variants: the number of different data slices of a shape; fewer mean more sharing.
        tenants: the number of namespaces, used in turn.
        options: further arguments of the shape.
    """

    shapes: tuple[str, ...] = Field(min_length=1)
    runs: int = Field(ge=1)
    rows: int = Field(default=24, ge=1)
    variants: int = Field(default=8, ge=1)
    tenants: int = Field(default=4, ge=1)
    arrivals: Arrivals = Arrivals()
    optimize: Literal["cost", "throughput", "latency", "balanced"] = "balanced"
    budget_usd: Dollars = 0.0
    deadline_s: NotNegative = 0.0
    options: dict[str, Any] = {}

    @model_validator(mode="after")
    def _known(self) -> "LoadSpec":
        for shape in self.shapes:
            if shape not in SHAPES and shape not in GROUPS:
                known = [*GROUPS, *SHAPES]
                raise ValueError(f"shapes: no shape {shape!r}{did_you_mean(shape, known)}")
        return self

    @property
    def drawn(self) -> tuple[str, ...]:
        """The shapes, with groups expanded."""
        return tuple(s for name in self.shapes for s in GROUPS.get(name, (name,)))


class FaultSpec(ScenarioModel):
    """A fault at a time, or at a rate.

    Attributes:
        at_s: the time; with ``perHour`` it happens at random at that rate instead (for each
            worker, if the fault affects a worker).
        pool: the affected worker's pool; empty for any. ``worker`` names one worker; else it is
            sampled, or with ``busiest`` the one with the most attempts.
        for_s: the duration.
        share: the affected share of calls, messages, attempts or workers; ``factor`` is the
            slowdown.
    """

    kind: FaultKind
    at_s: NotNegative | None = None
    per_hour: Positive | None = None
    pool: str = ""
    worker: str = ""
    busiest: bool = False
    for_s: NotNegative = 10.0
    share: float = Field(default=0.2, ge=0, le=1)
    factor: Positive = 4.0
    step_s: float = Field(default=60.0, allow_inf_nan=False)
    failure: FailureKind = FailureKind.ENGINE

    @model_validator(mode="after")
    def _when(self) -> "FaultSpec":
        if (self.at_s is None) == (self.per_hour is None):
            raise ValueError("give either atS or perHour")
        return self


class SimulatedCalls(ScenarioModel):
    """The calls of a simulated service, and how its engine answers them.

    Attributes:
        per_second: calls, in the mean; they begin with the service and last for ``for_s``.
        cv: of the gaps, for ``gamma``.
        units: work of a call, in the mean.
        deadline_s: of a call; ``cancelled`` the share whose clients leave before.
        calls_max: that one replica runs at once.
        step_s: seconds of a step; ``call_s`` what each call adds to it.
    """

    per_second: Positive
    for_s: Positive = 20.0
    kind: Literal["poisson", "gamma", "bursts"] = "poisson"
    cv: Positive = 2.0
    units: Positive = 20.0
    deadline_s: Positive = 10.0
    cancelled: float = Field(default=0.0, ge=0, le=1)
    tenants: int = Field(default=1, ge=1)
    calls_max: int = Field(default=8, ge=1)
    step_s: Positive = 0.02
    call_s: NotNegative = 0.002


class SimulatedService(ScenarioModel):
    """A service, whose replicas hold memory of workers.

    Attributes:
        replicas: the least number; ``most`` the most, where their number follows the demand.
        at_s: when it is created; ``until_s`` when it is deleted.
        memory_mib: of a replica.
        calls: that it gets; none by default.
    """

    name: str
    replicas: int = Field(default=1, ge=1)
    most: int = Field(default=0, ge=0)
    memory_mib: int = Field(default=1024, ge=1)
    at_s: NotNegative = 0.0
    until_s: Positive = 60.0
    calls: SimulatedCalls | None = None


class ControlSpec(ScenarioModel):
    """Settings of the control plane; the shipped defaults if absent.

    Attributes:
        result_ttl_s: how long results are retained.
        grace_s: younger blobs are not collected.
        tick_s: time between scheduling cycles without events; after events a cycle runs at once.
            Larger values make long simulations cheaper.
    """

    watchdog_s: Positive = 10.0
    sync_interval_s: Positive = 1.0
    sync_window_s: Positive = 3.0
    replicas: bool = True
    result_ttl_s: Positive = 30 * 86400.0
    grace_s: Positive = 86400.0
    tick_s: Positive = TICK_S


class Scenario(ScenarioModel):
    """A complete simulation.

    Attributes:
        sharing: who shares results: ``private`` to a tenant, every other tenant in one ``group``,
            or ``all``; with ``never`` nothing is reused, not even within a tenant.
        policy_options: arguments of the policy's constructor.
        signal: what decides how many workers the pools with ``autoscale`` have.
        facts: constants that differ from ``kernel/constants.yaml``, by path.
        limit_s: virtual seconds after which a run that has not ended counts as lost.
    """

    name: str
    pools: tuple[PoolSpec, ...]
    load: tuple[LoadSpec, ...]
    faults: tuple[FaultSpec, ...] = ()
    services: tuple[SimulatedService, ...] = ()
    routers: int = Field(default=1, ge=1)
    control: ControlSpec = ControlSpec()
    seed: int = 0
    policy: str = "shipped"
    policy_options: dict[str, float] = {}
    signal: str = "shipped"
    sharing: Literal["never", "private", "group", "all"] = "all"
    facts: dict[str, FiniteFloat] = {}
    limit_s: Positive = 7 * 86400.0

    @model_validator(mode="after")
    def _names(self) -> "Scenario":
        if self.policy not in POLICIES:
            raise ValueError(
                f"policy: no policy {self.policy!r}{did_you_mean(self.policy, POLICIES)}"
            )
        if self.signal not in SIGNALS:
            raise ValueError(
                f"signal: no signal {self.signal!r}{did_you_mean(self.signal, SIGNALS)}"
            )
        if self.signal == "frozen" and (
            self.services or any(p.spot or p.machines is not None for p in self.pools)
        ):
            raise ValueError("signal: the frozen one knows no services, spot workers or machines")
        pools = [p.name for p in self.pools]
        if not pools or len(set(pools)) < len(pools):
            raise ValueError("pools: give at least one, each with a name of its own")
        for fault in self.faults:
            if fault.pool and fault.pool not in pools:
                raise ValueError(f"faults: no pool {fault.pool!r}{did_you_mean(fault.pool, pools)}")
        known = read_constants().table
        for path in self.facts:
            if path not in known:
                raise ValueError(f"facts: no fact {path!r}{did_you_mean(path, known)}")
        return self


def read_scenario(path: Path) -> Scenario:
    """Reads and validates a scenario file.

    Raises:
        SpecError: it is not a valid scenario; lists every problem with its place.
    """
    return scenario_of(read_document(path), str(path))


def read_document(path: Path) -> Any:
    """Reads a YAML file.

    Raises:
        SpecError: it cannot be read, or is not YAML.
    """
    try:
        return YAML(typ="safe", pure=True).load(path.read_text())
    except OSError as e:
        raise SpecError([Problem(str(path), f"cannot be read: {e.strerror}")]) from e
    except (YAMLError, ValueError, RecursionError) as e:  # also invalid dates and deep nesting
        raise SpecError([Problem(str(path), f"is not YAML: {e}")]) from e


def scenario_of(document: Any, where: str = "scenario") -> Scenario:
    """Validates a scenario given as plain values.

    Raises:
        SpecError: it is not a valid scenario; lists every problem with its place.
    """
    try:
        return Scenario.model_validate(document)
    except ValidationError as e:
        raise SpecError(problems_of(e, where)) from e


def problems_of(error: ValidationError, where: str) -> list[Problem]:
    """Returns every problem with its place."""
    return [Problem(_place(where, x["loc"]), _reason(x)) for x in error.errors()]


def _place(where: str, loc: tuple[int | str, ...]) -> str:
    path = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in loc).lstrip(".")
    return f"{where}: {path}" if path else where


def _reason(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return "is not a field here; see docs/simulator.md"
    return error["msg"].removeprefix("Value error, ")
