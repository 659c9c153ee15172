"""What a namespace's attempts use of its quota: user code, workers, and dollars of the last day."""

from flowmesh_core.machine.namespace_limits import used_workers
from flowmesh_core.machine.state import State


class NamespaceUsage:
    """Reads the machine's state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def user_code_calls(self, namespace: str) -> int:
        """Returns how many attempts run the namespace's user code."""
        attempts = self._state.attempts.values()
        return sum(a.code_tenant == namespace and a.end is None for a in attempts)

    def workers(self, namespace: str) -> int:
        """Returns how many workers run attempts that only the namespace wants."""
        return len(used_workers(self._state, namespace))

    def nanousd_today(self, namespace: str, now_s: float) -> int:
        """Returns what the namespace's runs paid in the last 24 hours."""
        return self._state.daily_spend.total(namespace, now_s)
