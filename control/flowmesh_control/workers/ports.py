"""What the gateway of workers calls with their logs, metrics and requests."""

from typing import Protocol

from flowmesh_core.protocol.messages import Sync


class Telemetry(Protocol):
    """Receives the logs and metrics in workers' messages."""

    def synced(self, worker: str, sync: Sync) -> None:
        """Receives a worker's message."""
        ...

    def forget(self, worker: str) -> None:
        """Forgets a worker that left or was lost."""
        ...


class WorkerLog(Protocol):
    """Logs what workers ask for."""

    def joined(self, worker: str, pool: str, address: str) -> None:
        """Logs that a worker has joined, from an address."""
        ...

    def refused(self, worker: str, pool: str, address: str, reason: str, code: int) -> None:
        """Logs that a worker was refused, as by this status of HTTP.

        Name and pool are what it says, and empty where it did not say them.
        """
        ...

    def violated(self, worker: str, pool: str, problem: str) -> None:
        """Logs that items of a worker's message were dropped."""
        ...
