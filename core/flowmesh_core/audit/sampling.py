"""Draws the actions of an audit: a share of the run's actions, by a seed."""

import math
from collections.abc import Iterable

from flowmesh_core.audit.reconstruct import ReproducibleAction
from flowmesh_core.identity.digest import digest_value


def choose(made: Iterable[ReproducibleAction], share: float, seed: int) -> list[ReproducibleAction]:
    """Draws actions, each distinct one once; at least one where there is any.

    Args:
        made: the actions that a run used.
        share: in (0, 1].
        seed: equal seeds draw equal actions of equal runs.

    Returns:
        The drawn ones, in the order in which they were given.
    """
    distinct = {m.action_id: m for m in reversed(list(made))}
    count = math.ceil(round(share * len(distinct), 9))
    drawn = sorted(distinct, key=lambda name: digest_value("audit-sample", [seed, name]))[:count]
    chosen = set(drawn)
    return [m for name, m in reversed(distinct.items()) if name in chosen]
