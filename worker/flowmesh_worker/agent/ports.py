"""What the connection asks of the rest of the worker."""

from typing import Protocol

from flowmesh_core.protocol.messages import Desired, Hello, Sync


class ConnectedWorker(Protocol):
    """A worker that reports itself and follows what the control plane desires."""

    def hello(self, epoch: int) -> Hello:
        """Everything about it, for a new connection; ``epoch`` is the highest it has seen."""
        ...

    def sync(self, seq: int) -> Sync:
        """What has changed since the last report."""
        ...

    def follow(self, desired: Desired) -> None:
        """Does from now on what is desired."""
        ...
