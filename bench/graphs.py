"""The graphs and arrival times of the dispatch benchmark, the same for the fabric and its peers.

Each system runs in its own environment, so this module imports only the standard library. A graph
is a number of equal groups of tasks; a task depends on earlier ones of its group.
"""

import random
from collections.abc import Iterator
from itertools import accumulate

Group = list[tuple[int, ...]]
"""For each task of a group, the indices of the tasks that it depends on."""

GROUPS: dict[str, Group] = {
    "flat": [()],
    "chains": [(), *((i,) for i in range(99))],
    "diamonds": [(), (0,), (0,), (1, 2)],
    "fans": [(), *[(0,)] * 98, tuple(range(1, 99))],
}
SHAPES = tuple(GROUPS)
"""*flat* is independent, a *chain* has 100, a *diamond* is one, then two, then one that joins them,
a *fan* is one, then 98 after it, then one that joins those."""

LOAD_CHAIN = 10
"""Length of the chains that are submitted at half load."""


def graph(shape: str, count: int) -> Iterator[Group]:
    """Returns the groups of a graph of about ``count`` tasks: whole groups, at least one."""
    group = GROUPS[shape]
    return (group for _ in range(max(1, count // len(group))))


def ends(group: Group) -> list[int]:
    """Returns the tasks of a group on which none depends."""
    before = {task for tasks in group for task in tasks}
    return [n for n in range(len(group)) if n not in before]


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Returns the times of a Poisson process, in seconds from its start, by seed."""
    rng = random.Random(seed)
    steps = (rng.expovariate(rate) for _ in range(int(rate * seconds)))
    return list(accumulate(steps))


def quantile(values: list[float], share: float) -> float:
    """Returns a quantile of values, by rank."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
