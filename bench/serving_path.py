"""Measures what a request costs on its way through router, hub and engine host, without a model.

The engine is ``test.echo``. Beside it stand the same number of processes on the same framing that
do nothing but pass a request on (``bare_chain.py``), and a router alone, which checks token, limits
and body and answers that it has no replica. Contestants take turns; processor time a request is the
figure that other load on the machine changes least. Run it with ``make bench-serving-path``.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from pairs import interval, median_ratio
from peer import Peer
from results import SERVING_PAGE, Result, Table
from serving_load import Contestant, LoadGenerator, Outcome
from serving_stack import chat_body, echo_start, router_alone, serving_stack

CONCURRENT = (1, 8, 32)
_CALLS_MAX = 64
_TEXT = "word " * 190
"""With it a request has 1 KiB."""
_UNAVAILABLE = 503
OURS, BARE, ROUTER = "router, hub, host", "bare chain of 3", "router alone"

Found = dict[tuple[str, int], list[Outcome]]


async def measure(arguments: argparse.Namespace, folder: Path) -> Found:
    """Loads all contestants in turns."""
    found: Found = defaultdict(list)
    async with contextlib.AsyncExitStack() as stack:
        generator = LoadGenerator()
        stack.callback(generator.stop)
        body = chat_body(_TEXT)
        start = echo_start(folder / "host", _CALLS_MAX)
        ours = await stack.enter_async_context(
            serving_stack(folder / "ours", start, arguments.replicas)
        )
        alone = await stack.enter_async_context(router_alone(folder / "alone"))
        bare = await asyncio.to_thread(Peer, sys.executable, "bare_chain.py", "3")
        stack.callback(bare.stop)
        targets = [
            ours.contestant(OURS, body),
            Contestant(BARE, bare.ready["url"], body, bare.ready["processes"]),
            alone.contestant(ROUTER, body, status=_UNAVAILABLE),
        ]
        for target in targets:
            await generator.run(target, 8, seconds=arguments.seconds)
        for number in range(arguments.repeats):
            for concurrent in CONCURRENT:
                for target in targets if number % 2 else reversed(targets):
                    outcome = await generator.run(target, concurrent, seconds=arguments.seconds)
                    found[target.name, concurrent].append(outcome)
    return found


def table(found: Found) -> Table:
    """Returns the figures of all contestants."""
    columns = [
        *("contestant", "concurrent", "requests/s", "p50, ms", "p99, ms", "processor µs a request"),
        *("of it", "load generator µs", "rate beside the bare chain"),
    ]
    rows = []
    for (name, concurrent), outcomes in sorted(found.items(), key=lambda item: item[0][1]):
        middle = statistics.median
        parts = [
            f"{part} {middle(o.cpu_s[part] / o.requests * 1e6 for o in outcomes):.0f}"
            for part in outcomes[0].cpu_s
        ]
        bare = [o.rate for o in found[BARE, concurrent]]
        rows.append(
            [
                name,
                str(concurrent),
                f"{middle(o.rate for o in outcomes):.0f}",
                f"{middle(o.latency_ms(50) for o in outcomes):.2f}",
                f"{middle(o.latency_ms(99) for o in outcomes):.2f}",
                f"{middle(o.cpu_us for o in outcomes):.0f}",
                ", ".join(parts) if len(parts) > 1 else "",
                f"{middle(o.load_cpu_s / o.requests * 1e6 for o in outcomes):.0f}",
                interval(median_ratio([o.rate for o in outcomes], bare)),
            ]
        )
    title = "A request of 1 KiB to `test.echo`: medians, ratios with 95% intervals"
    return Table(title, columns, rows)


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of one measurement")
    parser.add_argument(
        "--replicas", type=int, default=1, help="of the host; several are chosen by the prompt"
    )
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    arguments = parser.parse_args()
    result = Result("serving-path", page=SERVING_PAGE)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        found = asyncio.run(measure(arguments, Path(folder)))
    result.tables.append(table(found))
    result.figures = {
        f"{name} at {concurrent}": {
            "requests_s": [o.rate for o in outcomes],
            "cpu_us": [o.cpu_us for o in outcomes],
        }
        for (name, concurrent), outcomes in found.items()
    }
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main()
