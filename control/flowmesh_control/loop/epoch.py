"""One leadership's number and time, as other parts of the leader read them."""

from dataclasses import dataclass

from flowmesh_control.loop.clock import Clock
from flowmesh_core.machine.state import State


@dataclass(frozen=True, slots=True)
class CurrentEpoch:
    """The epoch of the leading control plane.

    Attributes:
        number: counts leaderships of this store.
    """

    number: int
    clock: Clock
    state: State

    def now_s(self) -> float:
        """Returns seconds since the epoch of UTC, by the control plane's clock."""
        return self.clock()

    def is_steady(self) -> bool:
        """Returns whether workers of the epoch before have had their time to come back."""
        return self.clock() >= self.state.recovering_until_s
