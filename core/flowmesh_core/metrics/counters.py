"""The counters of one control plane; the machine reports everything that is counted.

``shares`` are dollars and joules and belong to the accounts: the next leader continues them. Every
leader counts all else from zero. Labels are few: tenants and models beyond a limit are ``other``;
administrators name pools, and the catalog names engines.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.metrics.histogram import Histogram
from flowmesh_core.metrics.label_limits import NONE, OTHER, LabelLimiter
from flowmesh_core.protocol.results import Usage

TENANTS_MAX = 50
MODELS_MAX = 30
SERVICES_MAX = 200
SHARES_MAX = 500
"""Combinations of tenant, pool and model."""

BATCH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200)
ERROR = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class UsageShare(msgspec.Struct):
    """The sums of one tenant's work on one pool with one model.

    Attributes:
        joules: paid; ``joules_estimated`` is the part of them that no meter has read.
        joules_saved: what hits would have used.
    """

    paid_nanousd: int = 0
    saved_nanousd: int = 0
    joules: float = 0.0
    joules_estimated: float = 0.0
    joules_saved: float = 0.0


class UsageRow(msgspec.Struct, frozen=True):
    """A share as the accounts store it."""

    tenant: str
    pool: str
    model: str
    share: UsageShare


@dataclass(slots=True)
class WorkCounters:
    """What attempts on one pool with one model have used."""

    tokens_in: int = 0
    tokens_out: int = 0
    load_s: float = 0.0
    run_s: float = 0.0


def _waits() -> Histogram:
    return Histogram(SECONDS)


def _batches() -> Histogram:
    return Histogram(BATCH)


def _errors() -> Histogram:
    return Histogram(ERROR)


@dataclass(slots=True, eq=False)
class MachineCounters:
    """Everything that is counted.

    Attributes:
        shares: by (tenant, pool, model).
        work: by (pool, model).
        dispatched: attempts assigned to workers, by pool.
        ended: ends of attempts, by (pool, outcome).
        steps_failed: steps that failed for good, by kind of failure.
        runs_ended: by (phase, reason).
        workers_left: by (pool, kind).
        second_opinions: failures that another worker was asked about, by pool of the first.
        untrusted_results: results that no subscriber accepted for its pool's trust, by pool.
        protocol_violations: messages of workers with dropped items, and results that are not what
            their identity says, by pool.
        not_learned: reports that are not credible, by (pool, ``run``, ``load``, ``wake``,
            ``fetch`` or ``memory``).
        wakes: by pool, engine instances that were asleep and have woken, and the seconds it took.
        batch: by engine, how many actions of a signature a worker had once a batch joined them.
        waited_s: by pool, seconds from ready to assigned.
        took_s: by pool, seconds from there to the end of the attempt.
        error: by engine, how far predicted run times were off, as a share of the longer one.
        worker_s: by pool, seconds of busy workers and of idle ones.
        replica_idle_s: of those, of workers with replicas of services of which none had a call.
        replica_load_s: by service, seconds from when a replica was sent to its worker, or was tried
            again, until it was ready.
        replica_failures: by service, how often a replica failed: while it loaded, or once ready.
        service_paid_nanousd: by service, what its replicas have cost.
        serving_plans: plans of replicas that changed what a worker holds.
    """

    shares: dict[tuple[str, str, str], UsageShare] = field(default_factory=dict)
    work: defaultdict[tuple[str, str], WorkCounters] = field(
        default_factory=lambda: defaultdict(WorkCounters)
    )
    dispatched: Counter[str] = field(default_factory=Counter)
    ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    steps_failed: Counter[str] = field(default_factory=Counter)
    runs_ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    workers_left: Counter[tuple[str, str]] = field(default_factory=Counter)
    second_opinions: Counter[str] = field(default_factory=Counter)
    untrusted_results: Counter[str] = field(default_factory=Counter)
    protocol_violations: Counter[str] = field(default_factory=Counter)
    not_learned: Counter[tuple[str, str]] = field(default_factory=Counter)
    wakes: defaultdict[str, list[float]] = field(
        default_factory=lambda: defaultdict(lambda: [0.0, 0.0])
    )
    batch: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(_batches))
    waited_s: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(_waits))
    took_s: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(_waits))
    error: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(_errors))
    worker_s: defaultdict[str, list[float]] = field(
        default_factory=lambda: defaultdict(lambda: [0.0, 0.0])
    )
    replica_idle_s: defaultdict[str, list[float]] = field(
        default_factory=lambda: defaultdict(lambda: [0.0, 0.0])
    )
    replica_load_s: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(_waits))
    replica_failures: Counter[str] = field(default_factory=Counter)
    service_paid_nanousd: Counter[str] = field(default_factory=Counter)
    serving_plans: int = 0
    _tenants: LabelLimiter = field(init=False)
    _models: LabelLimiter = field(init=False)
    _services: LabelLimiter = field(init=False)

    def __post_init__(self) -> None:
        """Makes the limiters of the labels."""
        self._tenants = LabelLimiter(TENANTS_MAX, self._forget_tenant)
        self._models = LabelLimiter(MODELS_MAX, self._forget_model)
        self._services = LabelLimiter(SERVICES_MAX, self._forget_service)

    def used(
        self, pool: str, model: str, outcome: str, usage: Usage | None, took_s: float, now_s: float
    ) -> None:
        """Counts the end of an attempt; ``usage`` is None where the worker did not report it."""
        self.ended[pool, outcome] += 1
        self.took_s[pool].observe(took_s)
        if usage is None:
            return
        done = self.work[pool, self._model(model, now_s)]
        done.tokens_in += usage.tokens_in
        done.tokens_out += usage.tokens_out
        done.load_s += usage.load_s
        done.run_s += usage.run_s

    def predicted(self, engine: str, predicted_s: float, run_s: float) -> None:
        """Counts an attempt that took ``run_s`` where ``predicted_s`` was predicted."""
        longer_s = max(predicted_s, run_s)
        if longer_s > 0.0:
            self.error[engine].observe(abs(predicted_s - run_s) / longer_s)

    def paid(
        self,
        tenant: str,
        pool: str,
        model: str,
        *,
        nanousd: int,
        joules: float,
        estimated: bool,
        now_s: float,
    ) -> None:
        """Counts a run's part of the cost of an attempt."""
        share = self._share(tenant, pool, model, now_s)
        share.paid_nanousd += nanousd
        share.joules += joules
        if estimated:
            share.joules_estimated += joules

    def saved(
        self, tenant: str, pool: str, model: str, *, nanousd: int, joules: float, now_s: float
    ) -> None:
        """Counts what a run did not have to pay, for a whole action or a part of one."""
        share = self._share(tenant, pool or NONE, model, now_s)
        share.saved_nanousd += nanousd
        share.joules_saved += joules

    def replica_sent(self, service: str, now_s: float) -> None:
        """Shows a service that has a replica with zero failures, so that the first one counts."""
        self.replica_failures[self._services.name(service, now_s)] += 0

    def replica_loaded(self, service: str, load_s: float, now_s: float) -> None:
        """Counts a replica that has become ready."""
        self.replica_load_s[self._services.name(service, now_s)].observe(load_s)

    def replica_failed(self, service: str, now_s: float) -> None:
        """Counts a replica that has failed."""
        self.replica_failures[self._services.name(service, now_s)] += 1

    def service_paid(self, service: str, nanousd: int, now_s: float) -> None:
        """Counts a service's part of the cost of a worker."""
        self.service_paid_nanousd[self._services.name(service, now_s)] += nanousd

    def restore(self, rows: Iterable[UsageRow], now_s: float) -> None:
        """Continues the shares of an earlier leader's accounts."""
        for row in rows:
            share = self._share(row.tenant, row.pool, row.model, now_s)
            for name in UsageShare.__struct_fields__:
                setattr(share, name, getattr(share, name) + getattr(row.share, name))

    def rows(self) -> tuple[UsageRow, ...]:
        """Returns the present shares, to be stored."""
        return tuple(
            UsageRow(tenant, pool, model, msgspec.structs.replace(share))
            for (tenant, pool, model), share in self.shares.items()
        )

    def tenant(self, namespace: str, now_s: float) -> str:
        """Returns the label of a namespace that has a live run."""
        return self._tenants.name(namespace, now_s)

    def _share(self, tenant: str, pool: str, model: str, now_s: float) -> UsageShare:
        key = (self._tenants.name(tenant, now_s), pool, self._model(model, now_s))
        share = self.shares.get(key)
        if share is None:
            if len(self.shares) >= SHARES_MAX:
                key = (OTHER, OTHER, OTHER)
            share = self.shares.setdefault(key, UsageShare())
        return share

    def _model(self, model: str, now_s: float) -> str:
        return self._models.name(model, now_s) if model else NONE

    def _forget_tenant(self, tenant: str) -> None:
        for key in [k for k in self.shares if k[0] == tenant]:
            del self.shares[key]

    def _forget_model(self, model: str) -> None:
        for key in [k for k in self.shares if k[2] == model]:
            del self.shares[key]
        for pair in [k for k in self.work if k[1] == model]:
            del self.work[pair]

    def _forget_service(self, service: str) -> None:
        self.replica_load_s.pop(service, None)
        self.replica_failures.pop(service, None)
        self.service_paid_nanousd.pop(service, None)
