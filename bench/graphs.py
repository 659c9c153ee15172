"""The graphs and arrivals that the dispatch benchmark gives to the fabric and to its peers alike.

Each system runs in an environment of its own, so this module imports the standard library alone.
A graph is groups of tasks, one like the other; a task comes after earlier ones of its group.
"""

import random
from collections.abc import Iterator
from itertools import accumulate

Group = list[tuple[int, ...]]
"""For each task of a group, the numbers within the group of those that it comes after."""

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
"""At half load, chains of so many come at random moments."""


def graph(shape: str, count: int) -> Iterator[Group]:
    """The groups of a graph of about ``count`` tasks: whole groups, at least one."""
    group = GROUPS[shape]
    return (group for _ in range(max(1, count // len(group))))


def ends(group: Group) -> list[int]:
    """The tasks of a group that nothing comes after."""
    before = {task for tasks in group for task in tasks}
    return [n for n in range(len(group)) if n not in before]


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """Moments of a Poisson process, in seconds from its beginning; the same for the same seed."""
    rng = random.Random(seed)
    steps = (rng.expovariate(rate) for _ in range(int(rate * seconds)))
    return list(accumulate(steps))


def quantile(values: list[float], share: float) -> float:
    """A quantile of values, by rank."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
