"""Compares four tenants who call one engine with four who have an engine each, at equal memory.

*One engine*: the tenants, each a namespace with its own token and prefix cache, call one service
through one router and one hub. *Four engines*: each tenant calls its own service, with a router, a
hub and an engine host of its own. Weights and key-value caches of the four engines, each with the
smallest cache that it can have, take as much memory as those of the one, or more. All are loaded
all the time and take turns; requests of a turn have equal prompts and greedy answers.

An answer counts towards goodput if it came within ``--scale`` times the latency of a request that
is alone on its engine. Run it with ``make bench-serving-tenants``.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import psutil
from generate import BUILTIN, builtin_model
from pairs import interval, median_ratio
from processor import trees_s
from results import SERVING_PAGE, Result, Table
from serving_load import Contestant, LoadGenerator, Outcome
from serving_stack import (
    CHAT,
    ServingStack,
    chat_body,
    model_settings,
    model_start,
    serving_stack,
)

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.llm.vllm_sizes import sizes_for
from flowmesh_worker.engines.models.model_facts import read_facts

TENANTS = tuple(f"team-{n}" for n in range(4))
CONCURRENT = (1, 2, 4, 8)
"""Requests of each tenant at once."""
ONE, FOUR = "one engine", "four engines"
THREADS = os.cpu_count() or 1
_ALONE = 3
_MIB = 1 << 20
_PROMPT = "Story number @NUMBER@ of TENANT. Write a long story about a robot that paints houses."


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of an engine host, and what of it are weights and key-value cache."""

    host_mib: int
    weights_mib: int
    cache_mib: int

    @property
    def model_mib(self) -> int:
        """Weights and cache."""
        return self.weights_mib + self.cache_mib


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement of a way: all tenants at once, each with as many requests.

    Attributes:
        seconds: from the first request to the last answer.
        cpu_s: of all processes of the way.
    """

    seconds: float
    tokens: int
    latencies_s: Sequence[float]
    cpu_s: float

    @property
    def rate(self) -> float:
        """Generated tokens per second."""
        return self.tokens / self.seconds

    def timely(self, deadline_s: float) -> float:
        """Returns the part of the answers that came within a deadline."""
        return sum(s <= deadline_s for s in self.latencies_s) / len(self.latencies_s)

    def goodput(self, deadline_s: float) -> float:
        """Returns tokens per second of answers within a deadline."""
        return self.rate * self.timely(deadline_s)


Found = dict[tuple[str, int], list[Turn]]
"""By way and requests of each tenant at once."""


def memories(model: Path) -> dict[str, Memory]:
    """Returns the memory of an engine of each way: four small ones have no less than the one."""
    facts = read_facts(model)
    weights = facts.weight_bytes_as("float32") // _MIB + 1

    def of(host_mib: int) -> Memory:
        sizes = sizes_for(facts, "float32", model_settings(model, host_mib))
        return Memory(host_mib, weights, sizes.kv_cache_bytes // _MIB)

    def fits(host_mib: int) -> bool:
        with contextlib.suppress(AttemptError):
            return bool(of(host_mib))
        return False

    small = of(next(mib for mib in itertools.count(weights) if fits(mib)))
    return {ONE: of(small.host_mib + (len(TENANTS) - 1) * small.model_mib), FOUR: small}


def _body(tenant: str, tokens: int) -> str:
    return chat_body(_PROMPT.replace("TENANT", tenant), max_tokens=tokens, temperature=0)


class Way:
    """One of the two ways: the stack that each tenant calls."""

    def __init__(self, name: str, stacks: Mapping[str, ServingStack], tokens: int) -> None:
        self.name = name
        self._stacks = {id(stack): stack for stack in stacks.values()}
        self._targets = {
            tenant: Contestant(
                name, stack.url + CHAT, _body(tenant, tokens), {}, stack.headers(tenant)
            )
            for tenant, stack in stacks.items()
        }

    @property
    def _roots(self) -> list[int]:
        return [pid for stack in self._stacks.values() for pid in stack.processes.values()]

    def resident_mib(self) -> float:
        """Returns the memory of all processes, shared pages counted once (PSS)."""
        roots = [psutil.Process(pid) for pid in self._roots]
        each = [p for root in roots for p in (root, *root.children(recursive=True))]
        return float(sum(process.memory_full_info().pss for process in each)) / _MIB

    async def alone(self, generator: LoadGenerator, first_number: int) -> Sequence[float]:
        """Returns latencies of requests that have an engine to themselves."""
        target = self._targets[TENANTS[0]]
        outcome = await generator.run(target, 1, requests=_ALONE, first_number=first_number)
        return outcome.latencies_s

    async def turn(
        self, generators: Sequence[LoadGenerator], concurrent: int, first_number: int
    ) -> Turn:
        """Has all tenants send their requests."""
        began_s, before_s = time.perf_counter(), trees_s(self._roots)
        outcomes: list[Outcome] = await asyncio.gather(
            *(
                generator.run(target, concurrent, requests=concurrent, first_number=first_number)
                for generator, target in zip(generators, self._targets.values(), strict=True)
            )
        )
        return Turn(
            time.perf_counter() - began_s,
            sum(outcome.tokens for outcome in outcomes),
            [s for outcome in outcomes for s in outcome.latencies_s],
            trees_s(self._roots) - before_s,
        )

    async def texts(self) -> dict[str, str]:
        """Returns the answer to each tenant's first prompt, which are asked at the same time."""
        async with aiohttp.ClientSession() as client:
            found = await asyncio.gather(*(_text(client, t) for t in self._targets.values()))
        return dict(zip(self._targets, found, strict=True))


async def _text(client: aiohttp.ClientSession, target: Contestant) -> str:
    headers = {**target.headers, "Content-Type": "application/json"}
    body = target.body.replace("@NUMBER@", "0")
    async with client.post(target.url, data=body, headers=headers) as response:
        response.raise_for_status()
        answer = msgspec.json.decode(await response.read())
    return str(answer["choices"][0]["message"]["content"])


@contextlib.asynccontextmanager
async def _ways(
    arguments: argparse.Namespace, folder: Path, sizes: Mapping[str, Memory], model: Path
) -> AsyncIterator[tuple[Way, Way]]:
    """Yields both ways, with all engines loaded."""
    async with contextlib.AsyncExitStack() as stack:

        async def loaded(name: str, way: str, tenants: Sequence[str]) -> ServingStack:
            start = model_start(folder / f"{name}-host", model, sizes[way].host_mib)
            if way == FOUR:
                start = msgspec.structs.replace(start, threads=arguments.threads)
            made = serving_stack(folder / name, start, namespaces=tenants)
            return await stack.enter_async_context(made)

        one = await loaded("all", ONE, TENANTS)
        each = {tenant: await loaded(tenant, FOUR, (tenant,)) for tenant in TENANTS}
        tokens = arguments.tokens
        yield Way(ONE, dict.fromkeys(TENANTS, one), tokens), Way(FOUR, each, tokens)


@dataclass(slots=True)
class Measured:
    """What the benchmark has found.

    Attributes:
        alone_s: latencies of requests that have an engine of their own to themselves.
        resident_mib: memory of all processes of a way at the end.
    """

    sizes: Mapping[str, Memory]
    turns: Found = field(default_factory=lambda: defaultdict(list))
    alone_s: list[float] = field(default_factory=list)
    resident_mib: dict[str, float] = field(default_factory=dict)


async def measure(arguments: argparse.Namespace, folder: Path) -> Measured:
    """Measures both ways in turns.

    Raises:
        RuntimeError: a tenant got another answer from one way than from the other.
    """
    model = builtin_model(folder)
    found = Measured(memories(model))
    async with contextlib.AsyncExitStack() as stack:
        generators = [LoadGenerator() for _ in TENANTS]
        for generator in generators:
            stack.callback(generator.stop)
        ways = await stack.enter_async_context(_ways(arguments, folder, found.sizes, model))
        texts = [await way.texts() for way in ways]  # warms all engines
        if texts[0] != texts[1]:
            raise RuntimeError(f"answers differ: {texts}")
        number = 1
        for turn in range(arguments.rounds):
            found.alone_s += await ways[1].alone(generators[0], number)
            number += _ALONE
            for concurrent in arguments.concurrent:
                for way in ways if turn % 2 else reversed(ways):
                    one = await way.turn(generators, concurrent, number)
                    found.turns[way.name, concurrent].append(one)
                    print(_line(way, concurrent, one), file=sys.stderr, flush=True)
                number += concurrent
        found.resident_mib = {way.name: way.resident_mib() for way in ways}
    return found


def _line(way: Way, concurrent: int, turn: Turn) -> str:
    return (
        f"{way.name}, {concurrent} of each tenant: {turn.rate:.1f} tokens/s, {turn.tokens} tokens,"
        f" p50 {statistics.median(turn.latencies_s):.2f} s, load {os.getloadavg()[0]:.1f}"
    )


def _rates(found: Measured, deadline_s: float) -> Table:
    columns = [
        *("at once, of each tenant", "one engine, tokens/s", "four engines, tokens/s", "ratio"),
        *("one engine, p50 s", "four engines, p50 s", "one engine, in time"),
        *("four engines, in time", "processor time a token, one beside four"),
    ]
    rows = []
    for concurrent in dict.fromkeys(concurrent for _, concurrent in found.turns):
        one, four = (found.turns[way, concurrent] for way in (ONE, FOUR))
        rates = [[turn.rate for turn in turns] for turns in (one, four)]
        cpu = [[turn.cpu_s / turn.tokens for turn in turns] for turns in (one, four)]
        rows.append(
            [
                str(concurrent),
                *(f"{statistics.median(values):.1f}" for values in rates),
                interval(median_ratio(*rates)),
                *(f"{_median_latency_s(turns):.2f}" for turns in (one, four)),
                *(f"{_timely(turns, deadline_s):.0%}" for turns in (one, four)),
                interval(median_ratio(*cpu)),
            ]
        )
    title = (
        f"Four tenants of {BUILTIN.partition(':')[2]} in float32, on one engine and on four:"
        f" medians of {len(one)} turns, 95% intervals"
    )
    sizes = ", ".join(
        f"{count} x {m.weights_mib} MiB of weights and {m.cache_mib} MiB of cache"
        for m, count in ((found.sizes[ONE], 1), (found.sizes[FOUR], len(TENANTS)))
    )
    resident = " and ".join(f"{found.resident_mib[way]:.0f} MiB" for way in (ONE, FOUR))
    notes = [
        f"One and four engines have {sizes}: {found.sizes[ONE].model_mib} and"
        f" {len(TENANTS) * found.sizes[FOUR].model_mib} MiB. With routers, hubs and all else they"
        f" use {resident} at the end.",
        "Every tenant's first answer is the same from both.",
    ]
    return Table(title, columns, rows, notes)


def _median_latency_s(turns: Sequence[Turn]) -> float:
    return statistics.median(s for turn in turns for s in turn.latencies_s)


def _timely(turns: Sequence[Turn], deadline_s: float) -> float:
    return statistics.mean(turn.timely(deadline_s) for turn in turns)


def best_goodput(turns: Found, way: str, deadline_s: float) -> tuple[int, list[float]]:
    """Returns the load at which a way has the most goodput, and its goodput in each turn."""
    by_load = {
        concurrent: [turn.goodput(deadline_s) for turn in some]
        for (name, concurrent), some in turns.items()
        if name == way
    }
    best = max(by_load, key=lambda load: statistics.median(by_load[load]))
    return best, by_load[best]


def _goodput(found: Measured, deadline_s: float) -> Table:
    best = [best_goodput(found.turns, way, deadline_s) for way in (ONE, FOUR)]
    cells = [f"{statistics.median(values):.1f} at {load} of each" for load, values in best]
    (_, one), (_, four) = best
    return Table(
        f"Goodput: tokens/s of answers within {deadline_s:.1f} s, at the load that is best for it",
        ["one engine", "four engines", "ratio", "goal"],
        [[*cells, interval(median_ratio(one, four)), "2"]],
    )


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=24, help="of an answer")
    parser.add_argument("--concurrent", type=int, nargs="+", default=CONCURRENT)
    parser.add_argument("--threads", type=int, default=THREADS, help="of each of four engines")
    parser.add_argument(
        "--scale", type=float, default=5.0, help="deadline, in latencies of a request alone"
    )
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    arguments = parser.parse_args()
    result = Result("serving-tenants", page=SERVING_PAGE)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        found = asyncio.run(measure(arguments, Path(folder)))
    deadline_s = arguments.scale * statistics.median(found.alone_s)
    result.tables = [_rates(found, deadline_s), _goodput(found, deadline_s)]
    result.figures = {
        "deadline_s": deadline_s,
        "resident_mib": found.resident_mib,
        "turns": {
            f"{way} at {concurrent}": [
                {"rate": t.rate, "timely": t.timely(deadline_s), "cpu_s": t.cpu_s} for t in turns
            ]
            for (way, concurrent), turns in found.turns.items()
        },
    }
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main()
