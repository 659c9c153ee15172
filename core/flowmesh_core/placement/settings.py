"""Thresholds of placement, each with its unit and its origin.

"Tuned" values were found on the evaluation's loads (docs/evaluation.md); "derived" ones follow from
the rule that uses them, "measured" ones from benchmarks.
"""

ALTERNATIVES_MAX = 4
"""Workers that a placement names besides the chosen one. Chosen for readers."""
EXPLAINED_GROUPS_MAX = 16
"""Groups per scheduling cycle whose alternatives are named. Measured: more cost time."""
REPLICA_LOAD_MAX_S = 5.0
"""Seconds that a replica attempt may load where it would run for less, since its original has
begun. Tuned (ADR 14)."""
FAIR_SHARE_HALF_LIFE_S = 600.0
"""Seconds after which a tenant's payments count half. Chosen."""
FAIR_SHARE_PRICE_NANOUSD_PER_HOUR = 10**9
"""What the time of workers without a price counts as, in fair shares alone. Chosen: a dollar."""
FAIR_SHARE_FORGOTTEN_NANOUSD = 1.0
"""Nano-dollars below which a tenant's payments are forgotten. Derived: less than one unit."""
LOCALITY_BY_WORKER_MAX = 64
"""Workers up to which input locality is looked up worker by worker. Measured."""
LOCAL_SEARCH_LOOKS_MAX = 2_000
"""Slots that local search may examine per cycle; about a microsecond each. Measured."""
RESERVATION_PATIENCE_S = 5.0
"""Seconds that an action must have waited before a worker is reserved for it. Tuned (ADR 5)."""
RESERVATION_PATIENCE_LOADS = 2.0
"""And this many times the load of its engine, so that two tenants who alternate on one worker leave
it working at least half of the time. Derived (ADR 5)."""
INTERRUPTIONS_PER_HOUR = 0.1
"""How often a provider takes a spot worker away, per hour of its life. Chosen: providers publish
from a few in a hundred a month to several a day, by kind of machine and region (ADR 73)."""
SUNK_COST_SHARE = 0.1
"""Share of the cost that counts on a worker that is paid for in any case. Tuned (ADR 87)."""
