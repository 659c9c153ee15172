"""Measures a chain of three no-op components, 1 KiB of JSON in and out, beside Ray Serve.

Ray Serve runs as it comes, tuned, and tuned with its proxy in C (``serving_ray.py``); a bare chain
is four of our processes on the framing of our links, without token, limits and metrics. Ours is
``serving_chain_fabric.py``, with all components in one trusted host, and with a worker each.
One contestant runs at a time, since even an idle Ray takes processor time; rounds repeat all of
them. Run it with ``make bench-serving-chain``.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from pairs import interval, median_ratio
from peer import Peer, python_of
from results import SERVING_PAGE, Result, Table
from serving_load import Contestant, LoadGenerator, Outcome

CONCURRENT = (1, 8, 32)
BODY = json.dumps({"text": "x" * 1000})
BARE, TUNED = "bare chain", "Ray Serve, tuned"
FABRIC = {"FlowMesh": "one-host", "FlowMesh, three workers": "three-workers"}
PEERS = {"Ray Serve, default": "default", TUNED: "tuned", "Ray Serve, tuned, HAProxy": "haproxy"}
_FABRIC_SCRIPT = "serving_chain_fabric.py"
_WARM_S = 2.0

Found = dict[tuple[str, int], list[Outcome]]


def contestants(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields names and commands: the Python, the script, and its arguments."""
    yield BARE, [sys.executable, "bare_chain.py", "4"]
    for name, variant in PEERS.items():
        yield name, [python_of("ray"), "serving_ray.py", variant]
    for name, placement in FABRIC.items():
        given = ("--serve", str(folder / placement), "--placements", placement)
        yield name, [sys.executable, _FABRIC_SCRIPT, *given]


def part_of_a_name(text: str) -> str:
    """Returns the text.

    Raises:
        argparse.ArgumentTypeError: no contestant has it in its name.
    """
    names = [BARE, *PEERS, *FABRIC]
    if not any(text in name for name in names):
        raise argparse.ArgumentTypeError(
            f"no contestant has {text!r} in its name; there are {'; '.join(names)}"
        )
    return text


async def measure(arguments: argparse.Namespace, folder: Path) -> Found:
    """Runs one contestant after the other, all of them again in each round."""
    found: Found = defaultdict(list)
    generator = LoadGenerator()
    for number in range(arguments.rounds):
        for name, command in contestants(folder / str(number)):
            if arguments.only and arguments.only not in name:
                continue
            peer = await asyncio.to_thread(Peer, *command)
            ready = peer.ready
            target = Contestant(
                name,
                ready["url"],
                ready.get("body", BODY),
                ready["processes"],
                ready.get("headers", {}),
            )
            await generator.run(target, 8, seconds=_WARM_S)
            for _ in range(arguments.repeats):
                for concurrent in CONCURRENT:
                    outcome = await generator.run(target, concurrent, seconds=arguments.seconds)
                    found[name, concurrent].append(outcome)
                    line = f"{name} at {concurrent}: {outcome.rate:.0f} requests/s"
                    print(line, file=sys.stderr, flush=True)
            await asyncio.to_thread(peer.stop)
    generator.stop()
    return found


def table(found: Found) -> Table:
    """Returns the figures of all contestants."""
    columns = [
        *("contestant", "concurrent", "requests/s", "p50, ms", "p99, ms", "processor ms a request"),
        *("load generator µs", f"rate beside {TUNED}"),
    ]
    rows = []
    for (name, concurrent), outcomes in sorted(found.items(), key=lambda item: item[0][1]):
        middle = statistics.median
        peers = [o.rate for o in found.get((TUNED, concurrent), ())]
        beside = ""
        if len(peers) == len(outcomes):
            beside = interval(median_ratio([o.rate for o in outcomes], peers), ".1f")
        rows.append(
            [
                name,
                str(concurrent),
                f"{middle(o.rate for o in outcomes):.0f}",
                f"{middle(o.latency_ms(50) for o in outcomes):.1f}",
                f"{middle(o.latency_ms(99) for o in outcomes):.1f}",
                f"{middle(o.cpu_us for o in outcomes) / 1000:.2f}",
                f"{middle(o.load_cpu_s / o.requests * 1e6 for o in outcomes):.0f}",
                beside,
            ]
        )
    title = "A chain of three no-op components, 1 KiB of JSON: medians, ratios with 95% intervals"
    return Table(title, columns, rows)


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="starts of each contestant")
    parser.add_argument("--repeats", type=int, default=3, help="measurements in a round")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one measurement")
    parser.add_argument(
        "--only", type=part_of_a_name, default="", help="the contestants with this in their name"
    )
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    arguments = parser.parse_args()
    result = Result("serving-chain", page=SERVING_PAGE)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        found = asyncio.run(measure(arguments, Path(folder)))
    result.tables.append(table(found))
    result.figures = {
        f"{name} at {concurrent}": [o.rate for o in outcomes]
        for (name, concurrent), outcomes in found.items()
    }
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main()
