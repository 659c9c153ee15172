"""Hosts of a simulated worker that have imported their libraries, by the real agent's rules.

One is kept for each kind of engine that work has asked for, once the worker is told what to hold
open; one is prepared at a time, and only while no engine loads. Whoever opens a host takes it,
finished or not.
"""

from collections.abc import Callable

from flowmesh_sim.kernel.environment import Environment

KEPT_S = 600.0
"""As of the real agent."""


class SimStandbyHosts:
    """What is prepared, and until when the next one takes.

    Attributes:
        allowed: whether hosts are prepared at all.
    """

    def __init__(
        self, engine: Environment, process_s: Callable[[], float], loading: Callable[[], bool]
    ) -> None:
        """Takes the clock, how long libraries take to import now, and whether an engine loads."""
        self._engine = engine
        self._process_s = process_s
        self._loading = loading
        self.allowed = False
        self._asked: dict[str, float] = {}
        self._ready_s: dict[str, float] = {}

    def asked(self, kind: str) -> None:
        """Work has come that may need a host of this kind."""
        if self.allowed:
            self._asked.pop(kind, None)
            self._asked[kind] = self._engine.now_s
            self.go_on()

    def take(self, kind: str) -> float | None:
        """Seconds until a host of this kind can load; None where none is on its way."""
        ready_s = self._ready_s.pop(kind, None)
        return None if ready_s is None else max(0.0, ready_s - self._engine.now_s)

    def go_on(self) -> None:
        """Begins the next one where it is time."""
        now = self._engine.now_s
        if self._loading() or any(ready_s > now for ready_s in self._ready_s.values()):
            return
        for kind in reversed(self._asked):
            if kind not in self._ready_s and now - self._asked[kind] < KEPT_S:
                took_s = self._process_s()
                self._ready_s[kind] = now + took_s
                self._engine.after(took_s, self.go_on)
                return
