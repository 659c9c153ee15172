"""``kill -9`` of hosts and hubs under calls: each is answered once; only what is lost is redone.

``make nightly JOBS=serving-recomputed`` sends 10,000 requests.
"""

import asyncio
import random
import secrets
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.flowmesh_serving.counted_echo import LOADS, computed_words
from tests.flowmesh_serving.hub_fleet import HubFleet, HubWorker, Lost, hub_fleet
from tests.flowmesh_serving.request_load import EchoLoad

from flowmesh_worker.ipc.frames import Start

START = Start("test.echo", LOADS, {}, (), 64, 1, {"callsMax": 32}, "")
WORKERS = 3
RATE = 50.0
AT_MOST = 1.3
"""Words computed again, over those that were lost."""


@dataclass
class LongLoad(EchoLoad):
    """Whole answers of 8 to 13 words, all but two of which take 50 ms each."""

    has_streams: bool = False

    def question(self, number: int) -> str:
        return " ".join((f"q{number}", *["rest"] * (6 + number % 6), f"a{number}"))

    def needed(self, number: int) -> int:
        """Returns how many words an answer has."""
        return len(self.question(number).split())


@dataclass
class Kills:
    """When what was killed, by worker."""

    at_s: defaultdict[str, list[tuple[float, Lost]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    async def kill(self, worker: HubWorker, lost: Lost) -> None:
        """Kills it and starts it again."""
        worker.kill(lost)
        self.at_s[worker.name].append((asyncio.get_running_loop().time(), lost))
        await worker.start_again(lost)

    def first_after(self, worker: str, when_s: float) -> tuple[float, Lost] | None:
        """Returns the first of a worker's kills after a time."""
        return next((kill for kill in self.at_s[worker] if kill[0] >= when_s), None)


@dataclass
class Words:
    """Words of answered requests.

    Attributes:
        needed: of the answers.
        computed: by all hosts.
        lost: computed for a call before its host or hub was killed, by what was killed.
        again: computed beyond those of the answer, by what was killed.
    """

    needed: int = 0
    computed: int = 0
    lost: Counter[Lost] = field(default_factory=Counter)
    again: Counter[Lost] = field(default_factory=Counter)

    @classmethod
    def of(cls, fleet: HubFleet, kills: Kills, load: LongLoad) -> "Words":
        """Counts them, by what the engines have noted."""
        found = cls()
        notes = notes_of(fleet)
        for number in range(load.sent + 1):
            by_host = notes[number]
            found.needed += load.needed(number)
            found.computed += sum(map(len, by_host.values()))
            answered = max(by_host, key=lambda host: max(by_host[host]))
            assert len(by_host[answered]) == load.needed(number), (number, by_host)
            for host, at_s in by_host.items():
                if host != answered:
                    kill = kills.first_after(host[0], min(at_s))
                    assert kill is not None, f"{number} was computed twice and nothing was killed"
                    found.lost[kill[1]] += sum(when_s <= kill[0] for when_s in at_s)
                    found.again[kill[1]] += len(at_s)
        return found

    def line(self, kills: int, load: LongLoad) -> str:
        """Returns the figures."""
        each = ", ".join(
            f"{part} {self.again[part]} for {self.lost[part]}" for part in sorted(self.lost)
        )
        return (
            f"recomputed after {kills} kills: {load.ok} right, {len(load.wrong)} wrong, "
            f"{len(load.doubled)} double, {len(load.failed)} failed, {load.refused} refused; "
            f"{self.computed} words for {self.needed} of answers "
            f"({self.computed / self.needed:.4f}); computed again for lost ones: {each}"
        )


Host = tuple[str, int]
"""The worker, and which of its engine hosts."""


def notes_of(fleet: HubFleet) -> Mapping[int, dict[Host, list[float]]]:
    """Returns when each host has computed the words of each request."""
    found: defaultdict[int, dict[Host, list[float]]] = defaultdict(dict)
    for worker in fleet.workers:
        for n, folder in enumerate(worker.folders):
            for number, at_s in computed_words(folder):
                found[number].setdefault((worker.name, n), []).append(at_s)
    return found


async def kill_under(fleet: HubFleet, load: LongLoad, requests: int, rng: random.Random) -> Kills:
    """Kills a part of a worker about every two seconds, until so many requests have been sent."""
    kills, parts = Kills(), list[Lost]()
    async with load.running():
        while load.sent < requests:
            wanted = load.ended + rng.randint(int(RATE), int(3 * RATE))
            while load.ended < wanted:  # noqa: ASYNC110 - a moment by what was served
                await asyncio.sleep(0.005)
            parts = parts or rng.sample(list(Lost), len(Lost))
            await kills.kill(rng.choice(fleet.workers), parts.pop())
            await fleet.until_ready()
    return kills


async def recomputed(root: Path, requests: int) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - to repeat it
    rng = random.Random(seed)
    async with hub_fleet(root, START, WORKERS) as fleet:
        load = LongLoad(fleet, RATE, rng=rng)
        kills = await kill_under(fleet, load, requests, rng)
        count = sum(map(len, kills.at_s.values()))
        assert (load.failed, load.wrong, load.doubled, load.refused) == ({}, [], [], 0)
        assert load.ok == load.sent + 1
        words = Words.of(fleet, kills, load)
        print(words.line(count, load))  # noqa: T201 - the figures
        assert words.computed - words.needed == words.again.total()
        for part in Lost:
            assert 0 < words.again[part] <= AT_MOST * words.lost[part], part


@pytest.mark.slow
async def test_a_call_is_answered_once_and_what_is_computed_again_was_lost(tmp_path: Path) -> None:
    await recomputed(tmp_path, 1500)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
async def test_ten_thousand_calls_under_kills_compute_again_what_was_lost(tmp_path: Path) -> None:
    await recomputed(tmp_path, 10_000)
