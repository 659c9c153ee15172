"""The way between a worker and the control plane: in order, late, held up, or cut.

A connection is a WebSocket's: what is sent arrives in order or not at all. *Silence* holds messages
back in both directions, as TCP does when packets are lost; a *cut* breaks the connection.
"""

from collections.abc import Callable
from typing import Any

from flowmesh_sim.engine import Engine


class Connection:
    """One connection; what was sent on it is lost when it breaks."""

    __slots__ = ("alive",)

    def __init__(self) -> None:
        """Is open."""
        self.alive = True


class Link:
    """One worker's network.

    Attributes:
        up: whether connections can be made.
        held_until_s: nothing passes before.
    """

    def __init__(self, engine: Engine, latency_s: float) -> None:
        """Takes the time of one message, one way."""
        self._engine = engine
        self.latency_s = latency_s
        self.up = True
        self.held_until_s = 0.0
        self._last_s = {"up": 0.0, "down": 0.0}

    def send(self, way: str, over: Connection, call: Callable[..., None], *args: Any) -> None:
        """Delivers a call ``up`` to the control plane or ``down`` to the worker."""
        at_s = max(
            self._engine.now_s + self.latency_s,
            self.held_until_s + self.latency_s,
            self._last_s[way],
        )
        self._last_s[way] = at_s
        self._engine.at(at_s, self._arrive, over, call, args)

    @staticmethod
    def _arrive(over: Connection, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        if over.alive:
            call(*args)
