"""Thresholds of autoscaling, each with its unit and its origin.

"Tuned" values were found on the evaluation's loads (docs/evaluation.md); "derived" ones follow from
the rule that uses them.
"""

SUPPLY_PATIENCE_STARTS = 3.0
"""Usual start times of a worker that a pool waits for missing workers. Tuned (ADR 23)."""
SUPPLY_PATIENCE_MIN_S = 180.0
"""Seconds that it waits for them at least. Tuned (ADR 23)."""
SUPPLY_RETRY_S = 1800.0
"""Seconds after which a pool whose workers did not come is tried again. Tuned (ADR 23)."""
UNABLE_UTILITY = -1.0
"""Utility of a pool that cannot run a signature: below any that can. Derived."""
DEMAND_GAP_MIN_S = 1.0
"""Seconds between actions of a signature, at least, for its demand. Tuned (ADR 16)."""
QUIET_SHARE = 0.33
"""Share of its capacity up to which a pool's engines may move to a cheaper one. Tuned (ADR 22)."""
BUSY_SHARE = 0.5
"""Share of its capacity above which they may move to a dearer one. Tuned (ADR 22)."""
SETTLED_SHARE = 0.5
"""Share of a group's engines open in a pool that makes it their pool. Tuned (ADR 22)."""
CHEAPER_COST_SHARE = 0.8
"""A pool is cheaper where it costs less than this share. Tuned (ADR 22)."""
VACATED_NOTICE_S = 60.0
"""Seconds for which a pool is reported as vacated. Tuned (ADR 22)."""
STEADY_S = 3600.0
"""Seconds: engines that move back sooner double their patience, others halve it. Tuned (ADR 22)."""
MOVE_PATIENCE_IDLE_TIMES = 32
"""Patience before a move, at most, in multiples of the pool's stabilization window. Tuned (ADR 22).
"""
