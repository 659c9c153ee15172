"""The systems that ``bench/dispatch.py`` compares, and their measurements."""

from dataclasses import dataclass, field

from graphs import graph
from peer import Peer


@dataclass(slots=True)
class Rounds:
    """A system's rates with one shape of graph, in tasks per second.

    Attributes:
        rates: measured from the acceptance of the graph; ``whole``: from its submission.
        processor_us: microseconds of CPU time an action of the fabric's control plane, from its
            submission to the moment that its end is durable; only the fabric reports it.
    """

    rates: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    processor_us: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Load:
    """Measurements at half load: chains per second, and seconds from each due time to the end.

    Attributes:
        waits_s: seconds of every action from ready to sent; only the fabric reports them.
    """

    rate: float
    latencies_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


class Contestant:
    """A system that runs graphs of no-op tasks."""

    def __init__(self, peer: Peer, part: int = 1) -> None:
        """Uses a warm peer, which gets ``part`` times fewer tasks."""
        self._peer = peer
        self._part = part

    async def graph(self, shape: str, count: int, rounds: Rounds) -> None:
        """Runs a graph."""
        count //= self._part
        tasks = sum(map(len, graph(shape, count)))
        answer = await self._peer.ask("graph", shape=shape, count=count)
        rounds.rates.append(tasks / answer["seconds"])
        rounds.whole.append(tasks / (answer["seconds"] + answer.get("acceptance_s", 0.0)))
        if "processor_s" in answer:
            rounds.processor_us.append(answer["processor_s"] / tasks * 1e6)

    async def load(self, load: Load, seconds: float, seed: int) -> None:
        """Submits chains at random times and waits for all of them."""
        answer = await self._peer.ask("load", rate=load.rate, seconds=seconds, seed=seed)
        load.latencies_s += answer["latencies_s"]
        load.waits_s += answer.get("waits_s", [])

    async def profile(self, shape: str, count: int) -> None:
        """Runs a graph under the fabric's profiler, which prints its result."""
        await self._peer.ask("profile", shape=shape, count=count)
