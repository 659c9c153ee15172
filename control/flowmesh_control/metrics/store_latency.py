"""Latency of the control plane's store operations, as histograms."""

from collections import Counter, defaultdict
from dataclasses import replace

from flowmesh_core.metrics.histogram import Histogram
from flowmesh_store.metered import MeteredBlobs, MeteredRecords
from flowmesh_store.store import Store

BOUNDS_S = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


class StoreMeter:
    """Observes the operations of a metered store.

    Attributes:
        latency: seconds by (operation, outcome); an outcome is ``ok`` or the name of an error.
        moved_bytes: by operation.
        refused: records that were not believed, by reason.
    """

    def __init__(self) -> None:
        self.latency: defaultdict[tuple[str, ...], Histogram] = defaultdict(
            lambda: Histogram(BOUNDS_S)
        )
        self.moved_bytes: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def observe(self, operation: str, outcome: str, seconds: float, size_bytes: int) -> None:
        """As :meth:`OperationMeter.observe`."""
        self.latency[operation, outcome].observe(seconds)
        if size_bytes:
            self.moved_bytes[operation] += size_bytes

    def refuse(self, reason: str) -> None:
        """Counts a record that is not believed, because of its seal."""
        self.refused[reason] += 1


def metered(store: Store, meter: StoreMeter) -> Store:
    """Returns the store with each operation on blobs and records reported to the meter."""
    measured = store.with_areas(lambda area: MeteredBlobs(area, meter))
    return replace(measured, records=MeteredRecords(store.records, meter))
