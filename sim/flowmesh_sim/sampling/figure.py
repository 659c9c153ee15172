"""The figure of sampled audits: in how many worlds the liar is found in time."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from flowmesh_sim.sampling.world import LIMIT, Outcome, World

SHARE = 0.02
LIE_RATE = 0.05


@dataclass(frozen=True, slots=True)
class Figure:
    """The outcomes of many worlds.

    Attributes:
        worlds: how many there were, and in how many of them the liar was ``found``.
        median: of the liar's drawable actions until it was found; ``slowest`` is the most.
        lies: published where it was found; ``left`` of them that look-ups found afterwards.
        accused: honest workers that were taken for the liar.
    """

    worlds: int
    found: int
    median: int
    slowest: int
    lies: int
    left: int
    accused: int

    def __str__(self) -> str:
        """Returns one line for the page of long jobs."""
        return (
            f"liar of 1 in {1 / LIE_RATE:.0f} found within {LIMIT} actions in {self.found} of "
            f"{self.worlds} seeds at sample {SHARE}, after {self.median} at the median, "
            f"{self.slowest} at most; of {self.lies} published lies {self.left} still found, "
            f"{self.accused} honest workers accused"
        )


def figure_of(seeds: Iterable[int]) -> Figure:
    """Runs a world for each seed."""
    outcomes = [_run(seed) for seed in seeds]
    found = [o for o in outcomes if o.found]
    actions = sorted(o.actions for o in found)
    return Figure(
        worlds=len(outcomes),
        found=len(found),
        median=actions[len(actions) // 2] if actions else 0,
        slowest=actions[-1] if actions else 0,
        lies=sum(o.lies for o in found),
        left=sum(o.left for o in found),
        accused=sum(o.accused for o in outcomes),
    )


def _run(seed: int) -> Outcome:
    return asyncio.run(World(seed, share=SHARE, lie_rate=LIE_RATE).run())
