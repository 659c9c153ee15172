"""Counts what collections of the store do; written by them, shown by the metrics."""

from collections import Counter
from dataclasses import dataclass, field

from flowmesh_api.v1.fabric import CollectionReport

KINDS = ("blobs", "results-expired", "results-evicted", "runs", "request-log")
"""What collections delete."""


@dataclass(slots=True)
class CollectionMeter:
    """What collections did since this control plane began to lead.

    Attributes:
        ended: collections by outcome, ``ok`` or ``failed``.
        deleted: what was deleted, by kind.
        deleted_bytes: size of the deleted blobs.
        under_way: whether one runs.
        last_s: Unix time of the end of the last one that succeeded; 0 where there was none.
        took_s: how long it took.
        live_bytes: size of the blobs that it found in use.
        stored_bytes: size of all blobs that it left.
        unreadable_runs: as in the last report.
    """

    ended: Counter[str] = field(default_factory=Counter)
    deleted: Counter[str] = field(default_factory=Counter)
    deleted_bytes: int = 0
    under_way: bool = False
    last_s: float = 0.0
    took_s: float = 0.0
    live_bytes: int = 0
    stored_bytes: int = 0
    unreadable_runs: tuple[str, ...] = ()

    def add(self, report: CollectionReport, *, now_s: float, took_s: float) -> None:
        """Adds a collection that succeeded."""
        self.ended["ok"] += 1
        self.deleted["blobs"] += report.deleted
        self.deleted["results-expired"] += report.expired_results
        self.deleted["results-evicted"] += report.evicted_results
        self.deleted["runs"] += report.expired_runs
        self.deleted["request-log"] += report.expired_log_segments
        self.deleted_bytes += report.deleted_bytes
        self.last_s, self.took_s = now_s, took_s
        self.live_bytes = report.live_bytes
        self.unreadable_runs = report.unreadable_runs
        self.stored_bytes = report.size_bytes - report.deleted_bytes
