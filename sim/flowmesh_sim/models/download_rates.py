"""Rates of downloads from the store: of a connection, and of a machine's network.

The bounds of the evaluations use the same function as the simulated workers, so that no simulated
download is quicker than they assume.
"""

from dataclasses import dataclass

from flowmesh_core.costmodel.devices import FETCH_CONNECTIONS, FETCH_PIECE_BYTES
from flowmesh_sim.kernel.constants import Constants

UNLIMITED = {f"network.{name}_bytes_per_s": 1e15 for name in ("connection", "datacenter", "leased")}
"""Constants with which a download takes next to nothing."""


@dataclass(frozen=True, slots=True)
class DownloadRates:
    """What a worker downloads at.

    As workers do, it reads the first piece of a blob by one connection, and the rest by several.
    """

    connection_bytes_per_s: float
    network_bytes_per_s: float

    def seconds(self, size_bytes: int) -> float:
        """Returns the seconds of a download alone, without the time to the first byte."""
        first = min(size_bytes, FETCH_PIECE_BYTES)
        rest = size_bytes - first
        return first / self._bytes_per_s(1) + rest / self._bytes_per_s(FETCH_CONNECTIONS)

    def share(self, size_bytes: int) -> float:
        """Returns which part of what several connections reach a download takes alone."""
        most = self._bytes_per_s(FETCH_CONNECTIONS)
        if size_bytes <= FETCH_PIECE_BYTES:
            return self._bytes_per_s(1) / most
        return size_bytes / self.seconds(size_bytes) / most

    def _bytes_per_s(self, connections: int) -> float:
        return min(connections * self.connection_bytes_per_s, self.network_bytes_per_s)


def download_rates(facts: Constants, start: str) -> DownloadRates:
    """Returns the rates of a pool's workers.

    Args:
        facts: the constants.
        start: of the pool; leased machines are not in the store's data centre.
    """
    network = facts.group("network")
    leased = start == "lease"
    return DownloadRates(
        connection_bytes_per_s=network.connection_bytes_per_s,
        network_bytes_per_s=(
            network.leased_bytes_per_s if leased else network.datacenter_bytes_per_s
        ),
    )


def fastest_downloads(facts: Constants) -> DownloadRates:
    """Returns the rates of the machines that download fastest."""
    found = [download_rates(facts, start) for start in ("pod", "lease")]
    return max(found, key=lambda rates: rates.network_bytes_per_s)
