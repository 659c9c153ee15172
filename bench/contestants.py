"""Who takes part in ``bench/dispatch.py``: a system in processes of its own, and what it did."""

from dataclasses import dataclass, field

from graphs import graph
from peer import Peer


@dataclass(slots=True)
class Rounds:
    """What a contestant did with one shape; rates in tasks a second.

    Attributes:
        rates: from the moment that the graph was accepted; ``whole``: from handing it in.
    """

    rates: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Load:
    """Half load: chains a second, seconds from each one's moment to its end.

    Attributes:
        waits_s: of every action, from ready to sent; of the fabric alone.
    """

    rate: float
    latencies_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


class Contestant:
    """A system that runs graphs of no-op tasks."""

    def __init__(self, peer: Peer, part: int = 1) -> None:
        """Takes a warm one, and how many times fewer tasks it gets."""
        self._peer = peer
        self._part = part

    async def graph(self, shape: str, count: int, rounds: Rounds) -> None:
        """Runs a graph."""
        count //= self._part
        tasks = sum(map(len, graph(shape, count)))
        answer = await self._peer.ask("graph", shape=shape, count=count)
        rounds.rates.append(tasks / answer["seconds"])
        rounds.whole.append(tasks / (answer["seconds"] + answer.get("acceptance_s", 0.0)))

    async def load(self, load: Load, seconds: float, seed: int) -> None:
        """Hands in chains at random moments and waits for all of them."""
        answer = await self._peer.ask("load", rate=load.rate, seconds=seconds, seed=seed)
        load.latencies_s += answer["latencies_s"]
        load.waits_s += answer.get("waits_s", [])

    async def profile(self, shape: str, count: int) -> None:
        """Runs a graph under the fabric's profiler, which prints what it found."""
        await self._peer.ask("profile", shape=shape, count=count)
