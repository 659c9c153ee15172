"""Measures how soon an engine takes work in a new host and in a standby host.

For each library one engine loads a small model in a separate process: in a new one, and in one that
has imported its libraries before (a standby host). The two alternate, so that a slow moment of the
machine affects both. Run it with ``make bench-start``.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from generate import BUILTIN, builtin_model
from results import Result, Table, spread

from flowmesh_core.units import Digest
from flowmesh_worker.engines.preload import HostPreload
from flowmesh_worker.engines.registry import Engines, installed_engines
from flowmesh_worker.instances.host_process import HostProcess, host_environment
from flowmesh_worker.instances.memory_watch import used_mib
from flowmesh_worker.ipc.frames import (
    FromHost,
    HostInput,
    Loaded,
    LoadFailed,
    Prepare,
    Prepared,
    Start,
)

ENGINES: dict[str, dict[str, Any]] = {
    "llm.generate": {"dtype": "float32", "batchInvariant": True},
    "llm.embed": {"dtype": "float32"},
    "train.sft": {"dtype": "float32", "use_peft": True},
}
THREADS = os.cpu_count() or 1
MEMORY_MIB = 6000

Found = dict[tuple[str, str], list[float]]


class Starting:
    """One host, from its start until its engine has loaded."""

    def __init__(self) -> None:
        """Starts nothing yet."""
        self._messages: asyncio.Queue[FromHost] = asyncio.Queue()
        self.process = HostProcess(self._messages.put_nowait, lambda _: None, lambda _: None)

    async def prepare(self, preparation: HostPreload) -> int:
        """Imports the libraries; returns the MiB that the process uses then."""
        await self.process.start(host_environment(os.environ, THREADS))
        self.process.send(Prepare(preparation.modules, THREADS, on_devices=False))
        message = await self._messages.get()
        if not isinstance(message, Prepared) or message.error:
            sys.exit(f"{preparation.name} is not prepared: {message}")
        return used_mib(self.process.pid)

    async def load(self, start: Start) -> float:
        """Loads the engine, in a new process if there is none; returns the seconds."""
        began = time.perf_counter()
        await self.process.start(host_environment(os.environ, THREADS))
        self.process.send(start)
        message = await self._messages.get()
        if isinstance(message, LoadFailed):
            sys.exit(f"{start.engine} does not load: {message.failure.message}")
        assert isinstance(message, Loaded)
        return time.perf_counter() - began


def _start(engines: Engines, engine: str, model: Path, scratch: Path) -> Start:
    scratch.mkdir()
    return Start(
        engine=engine,
        loads=engines.loads(engine),
        components={"model": HostInput("tree", Digest(""), (str(model),))},
        devices=(),
        memory_mib=MEMORY_MIB,
        threads=THREADS,
        signature_params=ENGINES[engine],
        scratch=str(scratch),
    )


async def _measure(model: Path, folder: Path, rounds: int) -> Found:
    engines, found = installed_engines(), defaultdict[tuple[str, str], list[float]](list)
    for number in range(rounds):
        for engine, params in ENGINES.items():
            preparation = engines.preparation(engine, params)
            assert preparation is not None
            for prepared in (False, True):
                host, way = Starting(), "prepared" if prepared else "cold"
                if prepared:
                    began = time.perf_counter()
                    found[engine, "mib"].append(await host.prepare(preparation))
                    found[engine, "preparing"].append(time.perf_counter() - began)
                start = _start(engines, engine, model, folder / f"{number}-{engine}-{way}")
                took_s = await host.load(start)
                await host.process.close(10.0)
                found[engine, way].append(took_s)
                print(f"round {number + 1}: {engine}, {way}: {took_s:.1f} s", file=sys.stderr)
    return found


def _row(engine: str, found: Found) -> list[str]:
    cold, prepared = found[engine, "cold"], found[engine, "prepared"]
    return [
        f"`{engine}`",
        spread(cold, ".1f"),
        spread(prepared, ".1f"),
        spread([a / b for a, b in zip(cold, prepared, strict=True)], ".1f"),
        spread(found[engine, "preparing"], ".1f"),
        f"{max(found[engine, 'mib']):.0f}",
    ]


def main() -> None:
    """Prints the result and writes it to the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--draft", action="store_true", help="only print; save nothing")
    arguments = parser.parse_args()
    result = Result("start")
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as folder:
        model = builtin_model(Path(folder))
        found = asyncio.run(_measure(model, Path(folder), arguments.rounds))
    columns = ["engine", "from nothing, s", "prepared, s", "ratio", "preparing took, s", "MiB held"]
    title = (
        f"Until an engine takes work, {BUILTIN.partition(':')[2]} on a CPU, "
        f"{arguments.rounds} rounds in turns: median (least to greatest)"
    )
    result.tables.append(Table(title, columns, [_row(engine, found) for engine in ENGINES]))
    result.figures = {f"{engine} {what}": values for (engine, what), values in found.items()}
    result.save(keep=not arguments.draft)


if __name__ == "__main__":
    main()
