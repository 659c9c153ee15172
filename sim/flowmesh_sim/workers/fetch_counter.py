"""Counts what a simulated worker downloads while its attempts fetch."""

from collections.abc import Callable


class SimFetchCounter:
    """Implements the agent's port ``FetchCounter``."""

    def __init__(self, received_bytes: Callable[[], float]) -> None:
        """Counts nothing yet; ``received_bytes`` returns all that has come to the worker."""
        self._received_bytes = received_bytes
        self._from_bytes: dict[str, float] = {}

    def begin(self, attempt_id: str) -> None:
        """As ``FetchCounter.begin``."""
        self._from_bytes[attempt_id] = self._received_bytes()

    def end(self, attempt_id: str) -> int:
        """As ``FetchCounter.end``."""
        from_bytes = self._from_bytes.pop(attempt_id, None)
        return 0 if from_bytes is None else round(self._received_bytes() - from_bytes)
