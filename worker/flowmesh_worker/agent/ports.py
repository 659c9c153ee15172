"""The ports of the agent: the rest of the worker for the connection, and the hub for the shell."""

from pathlib import Path
from typing import Protocol

from flowmesh_core.protocol.messages import (
    Desired,
    Hello,
    RouterAddress,
    ServingReplica,
    Sync,
)


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


class ServingHub(Protocol):
    """The hub: a process that takes calls of services from routers, for this worker's replicas.

    It posts ``HubReady``, ``HubExited`` and ``CallsBusy`` to the agent.
    """

    def start(self, hub_id: int, routers: tuple[RouterAddress, ...]) -> None:
        """Starts it, or has the one with this id connect to these routers instead."""
        ...

    def stop(self, hub_id: int) -> None:
        """Ends it."""
        ...

    def admit(
        self, instance_id: int, calls_socket: Path, replica: ServingReplica, halvings: int = 0
    ) -> None:
        """Has it send calls of a replica to an engine host, again with new limits and salts.

        Args:
            instance_id: of the host.
            calls_socket: where the host takes calls, in the directory that is the host's own.
            replica: its limits, and whose calls it takes.
            halvings: how often the calls that run at once are halved.
        """
        ...

    def withdraw(self, replica_id: str) -> None:
        """Has it send no other call to a replica; the last ``CallsBusy`` says that none is left."""
        ...

    async def close(self) -> None:
        """Ends it and waits until it is gone; no event answers it."""
        ...
