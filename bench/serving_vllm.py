"""Compares a model served by us with vLLM's own server: same wheel, model, dtype and flags.

Both are loaded all the time and take turns in pairs (ABBA), so that a slow moment of the machine
affects both. Requests of a pair have equal prompts, which no request had before; answers are
greedy, so both generate the same tokens. Run it with ``make bench-serving-vllm``.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from generate import BUILTIN, builtin_model
from pairs import interval, median_difference, median_ratio
from results import SERVING_PAGE, Result, Table
from serving_load import Contestant, LoadGenerator, Outcome
from serving_stack import chat_body, model_start, serving_stack
from vllm_peer import vllm_server

CONCURRENT = (1, 8, 32)
_WARM_CONCURRENT = 8
_PATH = ("router", "hub")
_PROMPT = "Story number @NUMBER@. Write a long story about a robot that learns to paint houses."

Pairs = dict[tuple[bool, int], list[tuple[Outcome, Outcome]]]


def _body(*, stream: bool, tokens: int) -> str:
    more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    return chat_body(_PROMPT, max_tokens=tokens, temperature=0, **more)


async def measure(arguments: argparse.Namespace, folder: Path) -> Pairs:
    """Measures both servers in pairs."""
    found: Pairs = defaultdict(list)
    model = builtin_model(folder)
    async with contextlib.AsyncExitStack() as stack:
        generator = LoadGenerator()
        stack.callback(generator.stop)
        start = model_start(folder / "host", model)
        ours = await stack.enter_async_context(serving_stack(folder / "ours", start))
        theirs = await stack.enter_async_context(vllm_server(model, "", folder / "vllm.log"))
        number = 0
        for turn in range(-1, arguments.repeats):  # the first is to warm both
            for stream in (False, True):
                body = _body(stream=stream, tokens=arguments.tokens)
                pair = [ours.contestant("ours", body), _with_body(theirs, body)]
                for concurrent in arguments.concurrent if turn >= 0 else (_WARM_CONCURRENT,):
                    requests = max(arguments.least, concurrent)
                    outcomes = {}
                    for target in pair if turn % 2 else reversed(pair):
                        outcomes[target.name] = await generator.run(
                            target, concurrent, requests=requests, first_number=number
                        )
                    number += requests
                    one, other = outcomes["ours"], outcomes[theirs.name]
                    print(_line(stream, concurrent, one, other), file=sys.stderr, flush=True)
                    if turn >= 0:
                        found[stream, concurrent].append((one, other))
    return found


def _with_body(target: Contestant, body: str) -> Contestant:
    return Contestant(target.name, target.url, body, target.processes)


def _line(stream: bool, concurrent: int, one: Outcome, other: Outcome) -> str:
    return (
        f"stream {stream} at {concurrent}: {one.token_rate:.1f}, {other.token_rate:.1f} tokens/s,"
        f" {one.ttft_ms:.0f} and {other.ttft_ms:.0f} ms, {one.tokens} and {other.tokens} tokens,"
        f" {one.cpu_s} and {other.cpu_s}"
    )


def table(found: Pairs) -> Table:
    """Returns tokens per second, times to the first byte and processor time of both."""
    columns = [
        *("answers", "concurrent", "ours, tokens/s", "vLLM's, tokens/s", "ratio"),
        *("ours, first byte p50, ms", "vLLM's, ms", "difference, ms"),
        *("router and hub of the engine's processor time", "all of ours beside all of vLLM's"),
    ]
    rows = []
    for (stream, concurrent), pairs in found.items():
        ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
        share = [sum(o.cpu_s[p] for p in _PATH) / o.cpu_s["host"] for o in ours]
        cpu = [sum(o.cpu_s.values()) / o.tokens for o in ours]
        their_cpu = [sum(o.cpu_s.values()) / o.tokens for o in theirs]
        first, their_first = [o.ttft_ms for o in ours], [o.ttft_ms for o in theirs]
        rates, their_rates = [o.token_rate for o in ours], [o.token_rate for o in theirs]
        rows.append(
            [
                "streams" if stream else "whole",
                str(concurrent),
                f"{statistics.median(rates):.1f}",
                f"{statistics.median(their_rates):.1f}",
                interval(median_ratio(rates, their_rates)),
                f"{statistics.median(first):.0f}" if stream else "",
                f"{statistics.median(their_first):.0f}" if stream else "",
                interval(median_difference(first, their_first), ".1f") if stream else "",
                f"{statistics.median(share) * 100:.1f}%",
                interval(median_ratio(cpu, their_cpu)),
            ]
        )
    title = (
        f"{BUILTIN.partition(':')[2]} in float32 through router, hub and host, and by vLLM's"
        f" api_server: medians of {len(next(iter(found.values())))} pairs, 95% intervals"
    )
    return Table(title, columns, rows)


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=32, help="of an answer")
    parser.add_argument("--least", type=int, default=2, help="requests of a measurement")
    parser.add_argument("--concurrent", type=int, nargs="+", default=CONCURRENT)
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    arguments = parser.parse_args()
    result = Result("serving-vllm", page=SERVING_PAGE)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        found = asyncio.run(measure(arguments, Path(folder)))
    result.tables.append(table(found))
    result.figures = {
        f"{'streams' if stream else 'whole'} at {concurrent}": {
            "ours": [a.token_rate for a, _ in pairs],
            "theirs": [b.token_rate for _, b in pairs],
        }
        for (stream, concurrent), pairs in found.items()
    }
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main()
