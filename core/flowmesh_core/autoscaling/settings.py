"""Thresholds of autoscaling, each with its unit and its origin.

"Tuned" values were found on the evaluation's loads (docs/evaluation.md); "derived" ones follow from
the rule that uses them.
"""

VALUE_OF_TIME_NANOUSD_PER_HOUR = 1_656_000_000.0
"""What an hour of a waiting run is worth where seconds and dollars have equal weights: $0.00046 a
second, the value by which docs/evaluation-placement.md judges. ``optimize: cost`` has a quarter of
it, ``throughput`` four times and ``latency`` ten times as much."""
VALUE_FACTOR_MOST = 10.0
"""That of ``latency``: no weights make a run's time worth more, or one could make pools grow to
their maximum at others' cost. Derived."""
USE_MOST = 0.95
"""Share of a pool's capacity that counts as taken at most: at 1 a wait has no mean. Derived."""
SUPPLY_PATIENCE_STARTS = 3.0
"""Usual start times of a worker that a pool waits for missing workers. Tuned (ADR 87)."""
SUPPLY_PATIENCE_MIN_S = 180.0
"""Seconds that it waits for them at least. Tuned (ADR 87)."""
SUPPLY_RETRY_S = 1800.0
"""Seconds after which a pool whose workers did not come is tried again. Tuned (ADR 87)."""
UNABLE_UTILITY = -1.0
"""Utility of a pool that cannot run a signature: below any that can. Derived."""
DEMAND_GAP_MIN_S = 1.0
"""Seconds between actions of a signature, at least, for its demand. Tuned (ADR 87)."""
SETTLED_SHARE = 0.5
"""Share of a group's engines open in a pool that makes it their pool. Tuned (ADR 87)."""
DISPLACED_SHARE = 0.5
"""How much of another engine's restart comes with that of one that has no worker: it takes the
memory of one that is as likely as not to be needed before it. Tuned (ADR 87)."""
SCALE_DOWN_S = 30.0
"""Seconds for which fewer workers must have been enough, where a pool does not say. Tuned (ADR 87).
"""
ROUND_MOST_S = 60.0
"""Seconds since the last look that count at most, after a stop of the control plane. Derived."""
SIZES_COMPARED = 64
"""Numbers of workers that are compared for a pool, about: all of them where it may have that many
more than its engines need. Derived: the signal is computed every second."""
MOVE_FAILURES_MOST = 5
"""Failed moves to a pool that count: each doubles what the next one must save. Derived."""
