"""The way between a worker and the control plane: in order, late, held up, or cut.

A connection is a WebSocket's: what is sent arrives in order or not at all. *Silence* holds messages
back, in both directions or in one, as TCP does when packets are lost; a *cut* breaks it.
Proxies that do what they must not are a fault too: a message *twice*, or one that is overtaken by
later ones and arrives when its connection is gone.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from flowmesh_sim.kernel.environment import Environment

LATE_S = 2.0
"""A message that is overtaken is late by up to so much."""


class SimulatedLinkConnection:
    """One connection; what was sent on it is lost when it breaks."""

    __slots__ = ("alive",)

    def __init__(self) -> None:
        """Is open."""
        self.alive = True


class Link:
    """One worker's network.

    Attributes:
        up: whether connections can be made.
        held_until_s: by way, nothing passes before.
        twice: the share of messages that arrive twice; ``overtaken`` of those that arrive late, on
            the way up even after their connection has ended.
    """

    def __init__(self, engine: Environment, latency_s: float, rng: Random) -> None:
        """Takes the time of one message, one way, and the dice of its faults."""
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
        """Lets the worker see that its connection was closed by the other end."""
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
