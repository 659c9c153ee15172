"""The port through which the connection uses the rest of the worker."""

from typing import Protocol

from flowmesh_core.protocol.messages import Desired, Hello, Sync


class ConnectedWorker(Protocol):
    """A worker that reports itself and follows the desired state."""

    def hello(self, epoch: int) -> Hello:
        """Returns a full report for a new connection; ``epoch`` is the highest it has seen."""
        ...

    def sync(self, seq: int) -> Sync:
        """Returns what has changed since the last report."""
        ...

    def follow(self, desired: Desired) -> None:
        """Follows a new desired state."""
        ...
