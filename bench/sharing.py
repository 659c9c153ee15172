"""Compares the fabric, own scripts and a Ray actor for eight tenants with overlapping work.

Every tenant samples the same model on a common benchmark and on its own questions. All systems run
the same vLLM with the same settings and must give the same completions:

* *own scripts*: every tenant loads the engine and answers its questions, one tenant after another;
* *Ray*: one actor has the engine, and the eight tenants' tasks call it at the same time;
* *fabric*: the eight workflows are submitted at the same time.

Rounds are interleaved. The time of a deduplication hit, from an action's look-up to its step's
completion, is measured too. Run it with ``make bench-sharing``, which makes Ray's environment.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from contestant_systems import MEMORY_MIB, TENANTS, Fabric, Other, Way, Work
from fabric import Bench
from graphs import quantile
from peer import Peer, python_of
from results import Result, Table, spread

HITS = 200
SITES = "FLOWMESH_BENCH_SITE"
VARIABLE = "FLOWMESH_BENCH_ENGINE"
HIT_GOAL_MS = 2.0


def _print_progress(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _rates(ways: Mapping[str, Way], served: int) -> list[list[str]]:
    rows = []
    for name, way in ways.items():
        with_load = [served / (s + way.load_s) for s in way.passes]
        total_cpu = [c + way.load_cpu_s for c in way.cpu_s]
        rows.append(
            [
                name,
                f"{way.loads} of {way.load_s / way.loads:.0f} s",
                spread(way.passes, ".1f"),
                spread([served / s for s in way.passes], ".0f"),
                spread(with_load, ".0f"),
                spread(way.cpu_s, ".0f"),
                spread(total_cpu, ".0f"),
            ]
        )
    return rows


def _ratios(ways: Mapping[str, Way]) -> list[list[str]]:
    ours = ways["fabric"]
    rows = []
    for name, way in ways.items():
        if way is not ours:
            pairs = list(zip(way.passes, ours.passes, strict=True))
            work = list(zip(way.cpu_s, ours.cpu_s, strict=True))
            both = way.load_cpu_s, ours.load_cpu_s
            rows.append(
                [
                    name,
                    spread([a / b for a, b in pairs]),
                    spread([(a + way.load_s) / (b + ours.load_s) for a, b in pairs]),
                    spread([a / b for a, b in work]),
                    spread([(a + both[0]) / (b + both[1]) for a, b in work]),
                ]
            )
    return rows


def _write_result(
    ways: dict[str, Way],
    hits: list[float],
    work: Work,
    arguments: argparse.Namespace,
    result: Result,
) -> None:
    scripts = ways["own scripts"]
    every = sum(len(x) for x in work.asked)
    once = len(work.common) + sum(map(len, work.own))
    served = round(statistics.median(ways["Ray, one actor"].made))
    result.tables = [
        Table(
            f"{TENANTS} tenants, {len(work.common)} common rows and {len(work.own[0])} of its own "
            f"each ({every} asked for, {once} different), {arguments.tokens} tokens a row, "
            f"{arguments.rounds} rounds in turns: median (least to greatest)",
            [
                "way",
                "engine loads",
                "all tenants done after, s",
                "tokens served/s",
                "with loading",
                "processor s",
                "with loading",
            ],
            _rates(ways, served),
            [
                "One own script is timed in each round, another tenant's each time, and counted "
                f"{TENANTS} times: side by side they would share two cores and need "
                f"{TENANTS} times the memory.",
                "Every way gave every prompt the same completion"
                + ("." if _same(ways) else ": **no**, some differ."),
            ],
        ),
        Table(
            "The other way over the fabric: how many times as much",
            ["way", "time", "time with loading", "processor time", "processor time with loading"],
            _ratios(ways),
        ),
        Table(
            f"A deduplication hit on a filesystem store, {len(hits)} of them",
            ["p50", "p99", "goal"],
            [[*(f"{quantile(hits, q) * 1e3:.2f} ms" for q in (0.5, 0.99)), f"{HIT_GOAL_MS:g} ms"]],
            [
                "From the look-up of an action to the completion of its step. Merging with an "
                "action in flight needs no look-up: it is part of naming the action."
            ],
        ),
    ]
    result.figures = {
        "hit_s": {q: quantile(hits, q) for q in (0.5, 0.99)},
        "passes_s": {n: w.passes for n, w in ways.items()},
        "cpu_s": {n: w.cpu_s for n, w in ways.items()},
        "load_s": {n: w.load_s for n, w in ways.items()},
        "generated": {n: w.made for n, w in ways.items()},
        "scripts_loads": scripts.loads,
    }


def _same(ways: Mapping[str, Way]) -> bool:
    first, *rest = (way.texts for way in ways.values())
    return all(first[p] == other[p] for other in rest for p in first.keys() & other.keys())


def _environment(model: Path, scratch: Path, tokens: int) -> dict[str, str]:
    """Returns the environment of a contestant's engine, as a worker starts its hosts."""
    given = {
        "model": str(model),
        "memory_mib": MEMORY_MIB,
        "threads": 2,
        "scratch": str(scratch),
        "max_tokens": tokens,
    }
    here = Path(__file__).resolve().parent
    packages = [str(here.parent / name) for name in ("api", "core", "store", "worker")]
    folders = os.pathsep.join([str(here), *packages, sysconfig.get_paths()["purelib"]])
    return {
        VARIABLE: json.dumps(given),
        SITES: folders,
        "OMP_NUM_THREADS": "2",
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
    }


async def run(arguments: argparse.Namespace) -> None:
    """Loads three engines in sequence, then runs all rounds."""
    python, result = python_of("ray"), Result("sharing")
    work = Work.of(arguments.common, arguments.own)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        root = Path(folder)
        bench = Bench(root, workers=1, memory_mib=MEMORY_MIB + 2048)
        await bench.start()
        others: list[Peer] = []
        try:
            fabric = Fabric(bench, work, arguments.tokens)
            hits = await fabric.hits(HITS)
            _print_progress(f"a hit takes {quantile(hits, 0.5) * 1e3:.2f} ms")
            await fabric.load(root / "model")
            _print_progress(f"the fabric's engine is loaded after {fabric.way.load_s:.0f} s")
            more = _environment(root / "model", root, arguments.tokens)
            path = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
            others.append(
                await asyncio.to_thread(Peer, sys.executable, "sharing_script.py", more=more | path)
            )
            _print_progress("the script's engine is loaded")
            others.append(await asyncio.to_thread(Peer, python, "sharing_ray.py", more=more))
            _print_progress("Ray's engine is loaded")
            scripts, ray = Other(others[0], work, TENANTS), Other(others[1], work, 1)
            for number in range(arguments.rounds):
                for contestant in (fabric, scripts, ray):
                    await contestant.round()
                _print_progress(f"round {number + 1} of {arguments.rounds}")
        finally:
            for other in others:
                other.stop()
            await bench.stop()
    ways = {"own scripts": scripts.way, "Ray, one actor": ray.way, "fabric": fabric.way}
    _write_result(ways, hits, work, arguments, result)
    result.versions["Ray"] = others[1].ready["version"]
    result.save(keep=not arguments.draft)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("--common", type=int, default=12, help="rows common to all tenants")
    given.add_argument("--own", type=int, default=4, help="rows of each tenant")
    given.add_argument("--tokens", type=int, default=24, help="maximum tokens per row")
    given.add_argument("--rounds", type=int, default=5)
    given.add_argument("--draft", action="store_true", help="only print; save nothing")
    return given


if __name__ == "__main__":
    asyncio.run(run(parser().parse_args()))
