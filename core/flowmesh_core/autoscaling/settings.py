"""Thresholds of autoscaling, each with its unit and its origin.

"Tuned" values were found on the evaluation's loads (docs/evaluation.md). "Derived" values follow
from the rule that uses them.
"""

VALUE_OF_TIME_NANOUSD_PER_HOUR = 1_656_000_000.0
"""The value of an hour of a waiting run if seconds and dollars have equal weights: $0.00046 a
second, the value that docs/evaluation-placement.md uses. With ``optimize: cost`` an hour is worth a
quarter of it, with ``throughput`` four times and with ``latency`` ten times as much."""
VALUE_FACTOR_MOST = 10.0
"""The factor of ``latency``, and the largest that any weights get: otherwise one tenant could make
pools grow to their maximum at the cost of others. Derived."""
USE_MOST = 0.95
"""Upper bound on a pool's use when waits are predicted: at 1 the mean wait is infinite. Derived."""
SUPPLY_PATIENCE_STARTS = 3.0
"""How long a pool waits for missing workers, in usual start times of a worker. Tuned (ADR 87)."""
SUPPLY_PATIENCE_MIN_S = 180.0
"""The least seconds that a pool waits for missing workers. Tuned (ADR 87)."""
SUPPLY_RETRY_S = 1800.0
"""Seconds after which a pool whose workers did not arrive is tried again. Tuned (ADR 87)."""
UNABLE_UTILITY = -1.0
"""The utility of a pool that cannot run a signature: lower than that of any pool that can. Derived.
"""
DEMAND_GAP_MIN_S = 1.0
"""The shortest expected gap between a signature's arrivals, in seconds. Tuned (ADR 87)."""
SETTLED_SHARE = 0.5
"""The share of the engines in demand that a pool must have open to be their pool. Tuned (ADR 87).
"""
DISPLACED_SHARE = 0.5
"""An engine that returns without a worker of its own takes the memory of another one, which is as
likely as not needed first. This share of another restart is added to its worth. Tuned (ADR 87)."""
SCALE_DOWN_S = 30.0
"""Seconds for which fewer workers must have been enough before a pool shrinks, unless the pool sets
its own. Tuned (ADR 87)."""
ROUND_MOST_S = 60.0
"""The most seconds since the last signal that count, for when the control plane was down. Derived.
"""
SIZES_COMPARED = 64
"""About how many numbers of workers are compared for a pool; all of them, if there are at most
twice as many. Derived: the signal is computed every second."""
MOVE_FAILURES_MOST = 5
"""The most failed moves to a pool that count; each doubles what the next must save. Derived."""
