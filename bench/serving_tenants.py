"""Four tenants that share one engine behind our router, beside four that have an engine each.

The memory is equal: each of the four engines, vLLM's own servers, has a quarter of what the shared
one has, and one of the cores' threads. Each tenant keeps so many streams open; goodput is the
tokens of all tenants per second, of requests whose first token came in time. The two ways take
turns (ABBA). Run it with ``make bench-serving-tenants``; it needs 12 GiB of memory.
"""

import argparse
import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from generate import BUILTIN, builtin_model
from pairs import interval, median_ratio
from results import SERVING_PAGE, Result, Table
from serving_load import Contestant, LoadGenerator, Outcome
from serving_stack import chat_body, model_start, serving_stack
from vllm_peer import vllm_server

TENANTS = 4
_MEMORY_MIB = 2200
"""Of a tenant's own engine: the weights, the processes and a little more than one context."""
_PROMPT = "Story number @NUMBER@. Write a long story about a robot that learns to paint houses."


async def together(
    generators: Sequence[LoadGenerator],
    targets: Sequence[Contestant],
    arguments: argparse.Namespace,
    number: int,
) -> list[Outcome]:
    """Has each tenant send its requests, all at the same time."""
    runs = [
        generator.run(
            target,
            arguments.concurrent,
            requests=arguments.requests,
            first_number=number + 1000 * tenant,
        )
        for tenant, (generator, target) in enumerate(zip(generators, targets, strict=True))
    ]
    return await asyncio.gather(*runs)


def goodput(outcomes: Sequence[Outcome], within_s: float) -> float:
    """Returns tokens per second of the requests whose first token came in time."""
    seconds = max(outcome.seconds for outcome in outcomes)
    good = 0.0
    for outcome in outcomes:
        in_time = sum(first <= within_s for first in outcome.first_s)
        good += outcome.tokens * in_time / outcome.requests
    return good / seconds


async def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, list[list[Outcome]]]:
    """Measures both ways in pairs."""
    model = builtin_model(folder)
    body = chat_body(
        _PROMPT,
        max_tokens=arguments.tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    found: dict[str, list[list[Outcome]]] = {"shared": [], "own": []}
    async with contextlib.AsyncExitStack() as stack:
        generators = [LoadGenerator() for _ in range(TENANTS)]
        for generator in generators:
            stack.callback(generator.stop)
        start = model_start(folder / "host", model, memory_mib=TENANTS * _MEMORY_MIB)
        shared = await stack.enter_async_context(serving_stack(folder / "ours", start))
        own = [
            await stack.enter_async_context(
                vllm_server(model, body, folder / f"{n}.log", memory_mib=_MEMORY_MIB, threads=1)
            )
            for n in range(TENANTS)
        ]
        ways = {"shared": [shared.contestant("shared", body)] * TENANTS, "own": own}
        for turn in range(-1, arguments.repeats):  # the first is to warm all engines
            for way in ways if turn % 2 else reversed(ways):
                outcomes = await together(generators, ways[way], arguments, 10_000 * (turn + 1))
                rate = goodput(outcomes, arguments.within)
                print(f"{way}: {rate:.1f} tokens/s in time", file=sys.stderr, flush=True)
                if turn >= 0:
                    found[way].append(outcomes)
    return found


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--concurrent", type=int, default=4, help="streams of a tenant")
    parser.add_argument("--requests", type=int, default=8, help="of a tenant in a measurement")
    parser.add_argument("--tokens", type=int, default=48, help="of an answer")
    parser.add_argument("--within", type=float, default=4.0, help="of the first token, seconds")
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    arguments = parser.parse_args()
    result = Result("serving-tenants", page=SERVING_PAGE)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        found = asyncio.run(measure(arguments, Path(folder)))
    rows = []
    for name, within_s in (("all tokens", float("inf")), ("in time", arguments.within)):
        shared, own = ([goodput(o, within_s) for o in found[way]] for way in ("shared", "own"))
        middle = interval(median_ratio(shared, own), ".2f")
        medians = [f"{sorted(rates)[len(rates) // 2]:.1f}" for rates in (shared, own)]
        rows.append([name, *medians, middle])
    title = (
        f"{BUILTIN.partition(':')[2]}: {TENANTS} tenants with {arguments.concurrent} streams each,"
        f" first token within {arguments.within:g} s, {TENANTS * _MEMORY_MIB} MiB in all"
    )
    columns = ["tokens/s", "one engine", "an engine each", "ratio"]
    result.tables.append(Table(title, columns, rows))
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main()
