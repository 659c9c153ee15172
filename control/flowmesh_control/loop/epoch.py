"""Number and clock of the current leadership, for the API and the operator."""

from dataclasses import dataclass

from flowmesh_control.loop.clock import Clock
from flowmesh_core.machine.state import State


@dataclass(frozen=True, slots=True)
class CurrentEpoch:
    """The epoch of the leading control plane.

    Attributes:
        number: the count of this store's leaderships.
    """

    number: int
    clock: Clock
    state: State

    def now_s(self) -> float:
        """Returns Unix time in seconds, by the control plane's clock."""
        return self.clock()

    def is_steady(self) -> bool:
        """Whether the time for workers of the previous epoch to reconnect is over."""
        return self.clock() >= self.state.recovering_until_s
