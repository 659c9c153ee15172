"""The network between a worker and the control plane, with faults.

A connection behaves like a WebSocket: messages arrive in order or not at all. *Silence* delays
messages in one or both directions, as TCP does when packets are lost; a *cut* closes the
connection. Faulty proxies are simulated too: messages that arrive *twice*, or late, after later
messages or after the end of their connection (*overtaken*).
"""

from collections.abc import Callable
from random import Random
from typing import Any

from flowmesh_sim.kernel.environment import Environment

LATE_S = 2.0
"""The maximum delay of a message that is overtaken."""


class SimulatedLinkConnection:
    """One connection; undelivered messages are lost when it breaks."""

    __slots__ = ("alive",)

    def __init__(self) -> None:
        self.alive = True


class Link:
    """One worker's network.

    Attributes:
        up: whether connections can be made.
        held_until_s: by direction, no message is delivered before this time.
        twice: the share of messages that arrive twice; ``overtaken`` is the share that arrives
            late, in direction ``up`` even after the end of the connection.
    """

    def __init__(self, engine: Environment, latency_s: float, rng: Random) -> None:
        """Starts without faults.

        Args:
            engine: the event queue.
            latency_s: of a message in one direction.
            rng: of the faults.
        """
        self._engine = engine
        self._rng = rng
        self.latency_s = latency_s
        self.up = True
        self.held_until_s = {"up": 0.0, "down": 0.0}
        self.twice = 0.0
        self.overtaken = 0.0
        self._last_s = {"up": 0.0, "down": 0.0}

    def send(
        self, way: str, over: SimulatedLinkConnection, call: Callable[..., None], *args: Any
    ) -> None:
        """Delivers a call ``up`` to the control plane or ``down`` to the worker."""
        at_s = max(
            self._engine.now_s + self.latency_s,
            self.held_until_s[way] + self.latency_s,
            self._last_s[way],
        )
        if self.overtaken and self._rng.random() < self.overtaken:
            at_s += self._rng.uniform(0.0, LATE_S)
            self._engine.at(at_s, self._late, way, over, call, args)
            return
        self._last_s[way] = at_s
        self._engine.at(at_s, self._arrive, over, call, args)
        if self.twice and self._rng.random() < self.twice:
            self._engine.at(at_s, self._arrive, over, call, args)

    def close(self, call: Callable[..., None], *args: Any) -> None:
        """Notifies the worker that the control plane has closed its connection."""
        at_s = max(self._engine.now_s, self.held_until_s["down"]) + self.latency_s
        self._engine.at(at_s, call, *args)

    @staticmethod
    def _arrive(
        over: SimulatedLinkConnection, call: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        if over.alive:
            call(*args)

    @staticmethod
    def _late(
        way: str, over: SimulatedLinkConnection, call: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        if over.alive or way == "up":
            call(*args)
