"""Settings of the machine, with the defaults of a laptop and of a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Settings:
    """Fixed while a control plane runs.

    Attributes:
        watchdog_s: a worker that has not synchronised for this long is lost.
        sync_window_s: after a recovery, how long to wait for workers to report what they run.
        poison_losses: this many lost workers or crashed hosts fail an action.
        repairs: how often a part of a run's step is reproduced for a lost blob.
        backoff_factor: growth of the delay between attempts after a failure of the engine.
        unplaceable_after_s: an action that no worker can ever run fails after this time; 0 waits
            for ever (a pool may grow).
        publish_patience_s: how long an ended attempt waits for space in a full store before its
            action fails.
        result_ttl_s: how long results stay valid.
        replicas: whether stragglers get a replica attempt, once a few actions of their kind were
            seen.
        replica_factor: a straggler has run for this many times its predicted p95.
        replica_after_s: and for at least this long.
        tenant_weights: tenant → weight of its fair share, above 0; 1 where absent.
        results_waiting_max: while more results than this wait for space in the store, no attempt
            begins: workers retain their reports until they are published.
        violations_max: a worker of this many protocol violations gets nothing new, where others can
            do its work; 0 lets every worker go on.
        pools_are_declared: whether nothing is placed before the reserved pools are known
            (``ReservedPoolsChanged``).
    """

    watchdog_s: float = 10.0
    sync_window_s: float = 3.0
    poison_losses: int = 3
    repairs: int = 3
    backoff_factor: float = 2.0
    unplaceable_after_s: float = 0.0
    publish_patience_s: float = 86400.0
    result_ttl_s: float = 30 * 86400.0
    replicas: bool = True
    replica_factor: float = 2.0
    replica_after_s: float = 10.0
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    results_waiting_max: int = 64
    violations_max: int = 3
    pools_are_declared: bool = False
