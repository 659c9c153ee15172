"""Telemetry that workers report: log lines by attempt, counters by pool.

Called by the worker gateway. A worker's counters start at zero with its process; a pool's continue:
they grow by the increase since the worker's last report.
"""

from collections import defaultdict
from collections.abc import Callable

from flowmesh_control.workers.log_buffer import LogBuffer
from flowmesh_core.protocol.messages import Sync

COUNTED = ("stored_bytes", "agent_cpu_s")
"""The counters that are summed; others that a worker reports are ignored."""


class WorkerTelemetry:
    """Buffers workers' log lines and sums their counters by pool.

    Attributes:
        totals: by counter, then by pool.
    """

    def __init__(self, logs: LogBuffer, pool_of: Callable[[str], str]) -> None:
        """Starts at zero.

        Args:
            logs: buffers the lines.
            pool_of: returns a worker's pool; empty where it is unknown.
        """
        self._logs = logs
        self._pool_of = pool_of
        self._last: dict[str, dict[str, float]] = {}
        self.totals: defaultdict[str, defaultdict[str, float]] = defaultdict(
            lambda: defaultdict(float)
        )

    def synced(self, worker: str, sync: Sync) -> None:
        """Adds a worker's message."""
        if sync.logs or sync.ended:
            self._logs.add(sync)
        pool = self._pool_of(worker) if sync.metrics else ""
        if not pool:
            return
        last = self._last.setdefault(worker, {})
        for name in COUNTED:
            value = sync.metrics.get(name, 0.0)
            known = last.get(name, 0.0)
            # A smaller value is from a new process under the same name.
            self.totals[name][pool] += value - known if value >= known else value
            last[name] = value

    def forget(self, worker: str) -> None:
        """Forgets a worker that left; its counts stay in its pool's totals."""
        self._last.pop(worker, None)
