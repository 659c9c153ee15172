"""The port to whoever makes workers: local processes on a laptop, Deployments on Kubernetes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class PoolSize:
    """A pool's workers.

    Attributes:
        wanted: how many there should be, ``running`` how many there are.
        most: the pool never grows beyond; ``least`` it never shrinks below.
    """

    name: str
    wanted: int
    running: int
    least: int
    most: int


class Provisioner(Protocol):
    """Makes workers and takes them away; idle ones first, and they drain."""

    async def pools(self) -> Sequence[PoolSize]:
        """Every pool as it is now."""
        ...

    async def resize(self, pool: str, workers: int) -> None:
        """Wants so many workers in a pool; within its bounds.

        Raises:
            FlowMeshError: the pool is unknown, or no worker can be made; says why.
        """
        ...
