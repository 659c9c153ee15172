"""The interface between the simulated pools and what decides how large they are.

A signal replaces the shipped autoscaling and nothing else: it gets the machine's state, read-only,
and the pools, and returns how many workers each should have. What workers cost, how they start and
how they leave is the same for all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from flowmesh_core.machine.state import State
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.units import Digest


@dataclass(frozen=True, slots=True)
class ScaledPool:
    """A simulated pool, as a signal sees it.

    Attributes:
        shape: of each of its workers (the name does not matter).
        minimum, maximum: the workers that it may have; equal where it is not scaled.
        start_s: expected seconds from an order until the worker connects.
        target_s: of the shipped signal: seconds of work that one worker may have before it.
        keep_alive_s: how long a worker that is no longer needed stays.
        local: components that a new worker would find on its disk.
        living: workers that run and do not drain; ``coming`` those that start or wait for a
            machine.
        is_scaled: whether the signal changes its size; ``prewarms`` whether its workers load
            engines ahead of work.
    """

    name: str
    shape: WorkerShape
    minimum: int
    maximum: int
    start_s: float
    target_s: float
    keep_alive_s: float
    local: frozenset[Digest]
    living: int
    coming: int
    is_scaled: bool = True
    prewarms: bool = True

    @property
    def current(self) -> int:
        """The workers that it has or gets."""
        return self.living + self.coming


class WantedSize(NamedTuple):
    """How large a pool should be.

    Attributes:
        workers: how many it should have; ``needed`` how many of them should take new work.
    """

    workers: int
    needed: int


@dataclass(frozen=True, slots=True)
class SignalDecision:
    """What a signal decides.

    Attributes:
        sizes: of the pools that are scaled, by name.
        prewarm: worker → signatures whose engines it should load ahead of work.
    """

    sizes: Mapping[str, WantedSize]
    prewarm: Mapping[str, tuple[Digest, ...]] = field(default_factory=dict)


class Signal(Protocol):
    """Decides the sizes of pools; may remember what it decided.

    Attributes:
        every_s: seconds between two decisions.
    """

    every_s: float

    def decide(self, state: State, pools: Sequence[ScaledPool], now_s: float) -> SignalDecision:
        """Returns the sizes of the pools that are scaled; it must not change the state."""
        ...
