"""What workers say of themselves: log lines by attempt, counters by pool.

A worker's counters begin with its process and end with it. A pool's go on: they grow by what each
worker's have grown since it last said them.
"""

from collections import defaultdict
from collections.abc import Callable

from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.protocol.messages import Sync

COUNTED = ("stored_bytes", "agent_cpu_s")
"""The names that are kept; a worker may say others, and nothing grows by them."""


class WorkerTelemetry:
    """Keeps workers' log lines and adds their counters up by pool."""

    def __init__(self, logs: LogBuffer, pool_of: Callable[[str], str]) -> None:
        """Takes the book of logs, and what says a worker's pool (empty where it is not known)."""
        self._logs = logs
        self._pool_of = pool_of
        self._last: dict[str, dict[str, float]] = {}
        self.totals: defaultdict[str, defaultdict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )

    def synced(self, worker: str, sync: Sync) -> None:
        """A worker's message."""
        if sync.logs or sync.ended:
            self._logs.add(sync)
        pool = self._pool_of(worker) if sync.metrics else ""
        if not pool:
            return
        last = self._last.setdefault(worker, {})
        for name in COUNTED:
            value = sync.metrics.get(name, 0.0)
            known = last.get(name, 0.0)
            # Less than before is another process under the same name.
            self.totals[name][pool] += value - known if value >= known else value
            last[name] = value

    def left(self, worker: str) -> None:
        """The worker is gone; what it counted stays in its pool's totals."""
        self._last.pop(worker, None)
