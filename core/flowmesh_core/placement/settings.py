"""Thresholds of placement, each with its unit and its origin.

"Tuned" values were found on the evaluation's loads (docs/evaluation.md). "Derived" values follow
from the rule that uses them. "Measured" values come from benchmarks.
"""

ALTERNATIVES_MAX = 4
"""Workers that a placement lists besides the chosen one. Chosen for readers."""
EXPLAINED_GROUPS_MAX = 16
"""Groups per scheduling cycle whose alternatives are listed. Measured: more groups cost time."""
REPLICA_LOAD_MAX_S = 5.0
"""Seconds that a replica attempt may always spend loading. If its run takes longer than this, it
may load for as long as it runs. The limit exists because the original has already begun. Tuned
(ADR 14)."""
FAIR_SHARE_HALF_LIFE_S = 600.0
"""Seconds after which a tenant's payments count half as much. Chosen."""
FAIR_SHARE_PRICE_NANOUSD_PER_HOUR = 10**9
"""The price of workers without a price, used only for fair shares. Chosen: a dollar."""
FAIR_SHARE_FORGOTTEN_NANOUSD = 1.0
"""Nano-dollars below which a tenant's payments are forgotten. Derived: less than one unit."""
LOCALITY_BY_WORKER_MAX = 64
"""The largest number of workers for which input locality is looked up worker by worker. It also
limits how many workers of zones with a copy each input adds to the candidates. Measured."""
LOCAL_SEARCH_LOOKS_MAX = 2_000
"""Slots that local search may examine per cycle; about a microsecond each. Measured."""
RESERVATION_PATIENCE_S = 5.0
"""Seconds that an action must have waited before a worker is reserved for it. Tuned (ADR 5)."""
RESERVATION_PATIENCE_LOADS = 2.0
"""It must also have waited this many times as long as its engine takes to load. So if two tenants
alternate on one worker, the worker runs actions at least half of the time. Derived (ADR 5)."""
INTERRUPTIONS_PER_HOUR = 0.1
"""Expected interruptions of a spot worker, per hour of its life. Chosen: providers publish rates
from a few percent a month to several a day, by kind of machine and region (ADR 73)."""
SUNK_COST_SHARE = 0.1
"""The share of the cost that counts on a worker that is paid for anyway. Tuned (ADR 87)."""
LOCALITY_SHARE = 0.5
"""The share of locality that counts. The predicted finish already contains the seconds to load and
to fetch; in full, locality kept actions on crowded instances beside idle workers. Tuned (ADR 105).
"""
SPREAD_GAIN = 1.1
"""Further instances are loaded only if an action would otherwise take more than this many times as
long as in instances with their even share. Tuned (ADR 105)."""
