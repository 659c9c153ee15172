"""Who takes part in ``bench/dispatch.py``: the fabric on a store, and peers in other processes."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fabric import Bench
from graphs import LOAD_CHAIN, Group, arrivals, graph
from peer import Peer


@dataclass(slots=True)
class Rounds:
    """What a contestant did with one shape; rates in tasks a second.

    Attributes:
        rates: from the moment that the graph was accepted; ``whole``: from handing it in.
        waits_s: from ready to sent.
    """

    rates: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Load:
    """Half load: chains a second, seconds from each one's moment to its end."""

    rate: float
    latencies_s: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)


class Contestant(Protocol):
    """A system that runs graphs of no-op tasks."""

    async def graph(self, shape: str, count: int, rounds: Rounds) -> None:
        """Runs a graph."""
        ...

    async def load(self, load: Load, seconds: float, seed: int) -> None:
        """Hands in chains at random moments and waits for all of them."""
        ...


class Fabric:
    """The fabric on one store, as a contestant."""

    def __init__(self, bench: Bench, part: int) -> None:
        """Takes a started fabric and how many times fewer actions it gets."""
        self._bench = bench
        self._part = part
        self._rounds = 0

    async def graph(self, shape: str, count: int, rounds: Rounds) -> None:
        """Runs a graph that nobody has run before."""
        self._rounds += 1
        self._bench.waits_s.clear()
        groups = list(graph(shape, count // self._part))
        actions = sum(map(len, groups))
        started = time.monotonic()
        uid = await self._bench.submit(_document(f"{shape}-{self._rounds}", groups))
        accepted = time.monotonic()
        status = await self._bench.ended(uid)
        ended = time.monotonic()
        if status.phase != "Succeeded" or status.executed != actions:
            raise RuntimeError(f"{shape}: {status.phase}, {status.executed} executed")
        rounds.rates.append(actions / (ended - accepted))
        rounds.whole.append(actions / (ended - started))
        rounds.waits_s += self._bench.waits_s

    async def load(self, load: Load, seconds: float, seed: int) -> None:
        """Hands in chains at random moments and waits for all of them."""
        self._rounds += 1
        self._bench.waits_s.clear()
        due_at: dict[str, float] = {}
        started = time.monotonic()
        moments = arrivals(load.rate, seconds, seed)
        watching = asyncio.create_task(self._watch(len(moments), due_at, load))
        async with asyncio.TaskGroup() as group:
            for number, due in enumerate(moments):
                at = started + due
                await asyncio.sleep(max(0.0, at - time.monotonic()))
                group.create_task(self._hand_in(f"load-{self._rounds}-{number}", at, due_at))
        await watching
        load.waits_s += self._bench.waits_s

    async def _hand_in(self, name: str, at: float, due_at: dict[str, float]) -> None:
        chain: Group = [(), *((n,) for n in range(LOAD_CHAIN - 1))]
        due_at[await self._bench.submit(_document(name, [chain]))] = at

    async def _watch(self, count: int, due_at: dict[str, float], load: Load) -> None:
        """Notes when each run has ended and is durable."""
        archive, ended = self._bench.parts.given.archive, dict[str, float]()
        async for uid in self._bench.parts.changes.all():
            if uid in archive and uid not in ended:
                ended[uid] = time.monotonic()
                if len(ended) == count:
                    break
        while len(due_at) < count:  # noqa: ASYNC110 - the last one's uid is a moment away
            await asyncio.sleep(0.001)
        load.latencies_s += [ended[uid] - at for uid, at in due_at.items()]


class Other:
    """A peer, as a contestant."""

    def __init__(self, peer: Peer) -> None:
        """Takes a warm one."""
        self._peer = peer

    async def graph(self, shape: str, count: int, rounds: Rounds) -> None:
        """Runs a graph."""
        tasks = sum(map(len, graph(shape, count)))
        answer = await self._peer.ask("graph", shape=shape, count=count)
        rounds.rates.append(tasks / answer["seconds"])
        rounds.whole.append(rounds.rates[-1])

    async def load(self, load: Load, seconds: float, seed: int) -> None:
        """Hands in chains at random moments and waits for all of them."""
        answer = await self._peer.ask("load", rate=load.rate, seconds=seconds, seed=seed)
        load.latencies_s += answer["latencies_s"]


def _document(name: str, groups: Sequence[Group]) -> dict[str, object]:
    """A workflow of no-ops; its name is in every action's parameter, so that none is a hit."""
    steps = []
    for number, group in enumerate(groups):
        for n, before in enumerate(group):
            step: dict[str, object] = {
                "name": f"s{number}-{n}",
                "uses": "test.noop",
                "with": {"value": f"{name}/{number}/{n}"},
            }
            if before:
                step["inputs"] = {f"before{b}": f"s{number}-{b}.metrics" for b in before}
            steps.append(step)
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name},
        "spec": {"steps": steps},
    }
