"""How Python's cyclic garbage collector runs in a process that holds many live objects.

Every action in flight is some hundred objects, none of them garbage for long and hardly any in a
cycle. With the interpreter's own thresholds the collector looks at all of them again and again: a
third of the processor time of a control plane with ten thousand steps. Called when one starts.
"""

import gc

YOUNG = 10_000
"""Objects made, less those gone, before the youngest are looked at: for a millisecond to four."""
MIDDLE, OLD = 25, 200
"""Looks at a generation before one at the next. What was in a cycle and in use at a look at the
youngest waits for one at the middle; what all looks cost goes by the product.
"""


def collect_seldom() -> None:
    """Raises the thresholds, for this process and for good; again is harmless."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)
