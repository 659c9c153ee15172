"""How many no-op actions a second go through a control plane and two local workers, beside Ray.

Four graphs of 10,000 actions: *flat* (independent), *chains* (100 chains of 100), *diamonds* (one,
then two, then one that joins them) and *fans* (one, then 99 after it). Every action is
named, looked up, placed, sent to a worker, run in an engine host, reported, published in a
filesystem store and accounted; Ray runs the same graphs of empty tasks in the same rounds. A last
round runs under a profiler and says where the control plane's time goes.

Run it with ``make bench-dispatch``, which makes Ray's environment; ``--without-ray`` needs none.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowmesh_control.access import StaticUsers
from flowmesh_control.admission import Submission
from flowmesh_control.control import ControlPlane
from flowmesh_control.downloads import manifest_of
from flowmesh_control.joining import StaticTokens
from flowmesh_control.plugins import load_catalog
from flowmesh_control.settings import ControlSettings
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.run.state import parse_attempt_id
from flowmesh_core.status.view import RunStatus
from flowmesh_store.datasets import read_dataset
from flowmesh_store.store import open_store
from flowmesh_store.tree import fetch_tree

TOKEN = secrets.token_hex(16)
CHAIN = 100
DIAMOND = 4
SHAPES = ("flat", "chains", "diamonds", "fans")
WORKERS = 2
PROFILE_LINES = 30
PACKAGES = ("flowmesh_core", "flowmesh_control", "flowmesh_store", "aiohttp", "asyncio", "msgspec")


@dataclass
class Round:
    """One graph through the fabric; times in seconds."""

    accept_s: float
    run_s: float
    waits_s: list[float] = field(repr=False)


class NoSecrets:
    """No step of this bench names a secret."""

    async def read(self, namespace: str, names: tuple[str, ...]) -> dict[str, str]:
        """Refuses."""
        raise FlowMeshError(f"namespace {namespace} has no secrets {names}")


class Bench:
    """A control plane in this process and workers in theirs, on a directory."""

    def __init__(self, root: Path, *, workers: int = WORKERS, memory_mib: int = 1024) -> None:
        """Takes an empty directory, and how many workers with how much memory there are."""
        self._root = root
        self._count = workers
        self._memory_mib = memory_mib
        self._rounds = 0
        self._workers: list[subprocess.Popen[bytes]] = []
        self._waits: list[float] = []
        self._control = ControlPlane(
            open_store(root / "store"),
            ControlSettings(),
            catalog=load_catalog(),
            master_key=secrets.token_bytes(32),
            users=StaticUsers(TOKEN),
            tokens=StaticTokens({"local": TOKEN}),
            secrets=NoSecrets(),
        )

    async def start(self) -> None:
        """Starts everything and waits until the workers have joined."""
        await self._control.start()
        gateway = self._control.parts.gateway
        plain = gateway.assign

        def assign(worker: str, assignment: Assignment) -> None:
            actions = self._control.parts.given.machine.state.actions
            action = actions.get(parse_attempt_id(assignment.attempt_id))
            if action is not None:
                self._waits.append(time.time() - action.ready_s)
            plain(worker, assignment)

        gateway.assign = assign  # type: ignore[method-assign]
        for n in range(self._count):
            self._workers.append(self._worker(f"w{n}"))
        while len(self._control.parts.given.machine.state.workers) < self._count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Ends everything that was started."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            await asyncio.to_thread(worker.wait)
        await self._control.stop()

    async def run(self, shape: str, count: int) -> Round:
        """Runs a graph that nobody has run before."""
        self._rounds += 1
        self._waits.clear()
        started = time.monotonic()
        uid = await self.submit(_document(shape, count, self._rounds))
        accepted_at = time.monotonic()
        status = await self.ended(uid)
        ended = time.monotonic()
        if status.phase != "Succeeded" or status.executed != count:
            raise RuntimeError(f"{shape}: {status.phase}, {status.executed} executed")
        return Round(accepted_at - started, ended - accepted_at, list(self._waits))

    async def submit(self, document: dict[str, object], namespace: str = "") -> str:
        """Hands a workflow in; gives the run's uid."""
        submission = Submission(document, namespace=namespace)
        return (await self._control.parts.admission.submit(submission)).uid

    async def ended(self, uid: str) -> RunStatus:
        """Waits for a run's end; gives its status."""
        parts = self._control.parts
        while uid not in parts.given.archive:  # noqa: ASYNC110 - as a user would poll
            await asyncio.sleep(0.01)
        return await parts.views.status(uid)

    async def rows(self, uid: str, output: str) -> list[dict[str, Any]]:
        """The rows of a run's output."""
        parts = self._control.parts
        artifacts = (await parts.views.outputs(uid))[output]
        found: list[dict[str, Any]] = []
        for artifact in artifacts:
            manifest = await manifest_of(parts.given.store.blobs, artifact)
            found += await read_dataset(parts.given.store.blobs.get, manifest)
        return found

    async def metrics(self, uid: str, output: str) -> dict[str, Any]:
        """The metrics of a run's output."""
        [artifact] = (await self._control.parts.views.outputs(uid))[output]
        data = await self._control.parts.given.store.blobs.get(artifact.blob)
        return dict(json.loads(data))

    async def directory(self, uid: str, output: str, target: Path) -> None:
        """Fetches a run's model or adapter."""
        [artifact] = (await self._control.parts.views.outputs(uid))[output]
        await fetch_tree(self._control.parts.given.store.blobs, artifact.digest, target)

    def hosts(self, engine: str) -> set[tuple[str, str]]:
        """Worker and signature of every host of an engine that there is now."""
        workers = self._control.parts.given.machine.state.workers
        lanes = ((name, lane) for name, w in workers.items() for lane in w.lanes)
        return {(name, lane.signature) for name, lane in lanes if lane.engine == engine}

    def _worker(self, name: str) -> "subprocess.Popen[bytes]":
        gateway = self._control.url.replace("http://", "ws://")
        arguments = ["--gateway", gateway, "--store", str(self._root / "store"), "--name", name]
        arguments += ["--cache-dir", str(self._root / name), "--memory-mib", str(self._memory_mib)]
        arguments += ["--cpus", str(3 - self._count)]
        arguments += ["--price-usd-per-hour", "0.10", "--cpu-only", "--grace", "1"]
        log = (self._root / f"{name}.log").open("wb")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", "flowmesh_worker", *arguments],
                env={**os.environ, "FLOWMESH_WORKER_TOKEN": TOKEN},
                stdout=log,
                stderr=log,
            )


class Ray:
    """Ray in its own environment and process."""

    def __init__(self, python: str) -> None:
        """Starts it and waits until it is warm."""
        script = Path(__file__).with_name("dispatch_ray.py")
        self._process = subprocess.Popen(
            [python, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")},
        )
        self.version = self._answer().split()[-1]

    def run(self, shape: str, count: int) -> float:
        """Runs a graph; seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{shape} {count}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def stop(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("Ray ended; run bench/dispatch_ray.py by hand to see why")
        return line.strip()


def _before(shape: str, i: int) -> tuple[int, ...]:
    """The steps that a step comes after."""
    if shape == "chains" and i % CHAIN:
        return (i - 1,)
    if shape == "fans" and i % CHAIN:
        return (i - i % CHAIN,)
    if shape == "diamonds" and i % DIAMOND:
        top = i - i % DIAMOND
        return (top + 1, top + 2) if i == top + DIAMOND - 1 else (top,)
    return ()


def _document(shape: str, count: int, number: int) -> dict[str, object]:
    steps = []
    for i in range(count):
        step: dict[str, object] = {
            "name": f"s{i}",
            "uses": "test.noop",
            "with": {"value": number * count + i},
        }
        before = _before(shape, i)
        if before:
            step["inputs"] = {f"before{n}": f"s{b}.metrics" for n, b in enumerate(before)}
        steps.append(step)
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": f"{shape}-{number}"},
        "spec": {"steps": steps},
    }


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def _report(shape: str, count: int, rounds: list[Round], ray: list[float]) -> None:
    rates = [count / r.run_s for r in rounds]
    whole = [count / (r.run_s + r.accept_s) for r in rounds]
    waits = [w * 1e3 for r in rounds for w in r.waits_s]
    print(f"{shape}: {count} actions, {len(rounds)} rounds, medians")
    print(f"  dispatches/s              {statistics.median(rates):8.0f}")
    print(f"  with admission (compile)  {statistics.median(whole):8.0f}")
    print(f"  ready to sent, p50        {_quantile(waits, 0.50):8.1f} ms")
    print(f"  ready to sent, p99        {_quantile(waits, 0.99):8.1f} ms")
    if ray:
        theirs = [count / s for s in ray]
        ratios = [a / b for a, b in zip(rates, theirs, strict=True)]
        print(f"  Ray, tasks/s              {statistics.median(theirs):8.0f}")
        print(f"  ratio to Ray              {statistics.median(ratios):8.2f}  (the bar is 2.00)")


def _profiled(profile: cProfile.Profile) -> None:
    stats = pstats.Stats(profile)
    by_package: Counter[str] = Counter()
    total = 0.0
    for (path, _, _), (_, _, own_s, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        total += own_s
        by_package[next((p for p in PACKAGES if p in path), "other")] += own_s
    print("where the control plane's time goes, by package (idle waiting is in other):")
    for package, own_s in by_package.most_common():
        print(f"  {package:20} {own_s:6.2f} s  {own_s / total:4.0%}")
    stats.sort_stats("tottime").print_stats(PROFILE_LINES)


async def bench(arguments: argparse.Namespace) -> None:
    """Runs all rounds and prints what they gave."""
    python = os.environ.get("FLOWMESH_RAY_PYTHON", "")
    if not arguments.without_ray and not python:
        sys.exit("FLOWMESH_RAY_PYTHON is not set: run `make bench-dispatch`, or --without-ray")
    ray = None if arguments.without_ray else await asyncio.to_thread(Ray, python)
    with tempfile.TemporaryDirectory(prefix="flowmesh-bench-") as root:
        fabric = Bench(Path(root))
        await fabric.start()
        try:
            await _rounds(fabric, ray, arguments)
        finally:
            await fabric.stop()
            if ray is not None:
                ray.stop()


async def _rounds(fabric: Bench, ray: Ray | None, arguments: argparse.Namespace) -> None:
    await fabric.run("flat", 500)
    if ray is not None:
        print(f"beside Ray {ray.version}")
    ours: dict[str, list[Round]] = {shape: [] for shape in arguments.shapes}
    theirs: dict[str, list[float]] = {shape: [] for shape in arguments.shapes}
    for _ in range(arguments.rounds):
        for shape, rounds in ours.items():
            rounds.append(await fabric.run(shape, arguments.count))
            if ray is not None:
                theirs[shape].append(await asyncio.to_thread(ray.run, shape, arguments.count))
    for shape, rounds in ours.items():
        _report(shape, arguments.count, rounds, theirs[shape])
    if not arguments.without_profile:
        profile = cProfile.Profile()
        profile.enable()
        await fabric.run("flat", arguments.count)
        profile.disable()
        _profiled(profile)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=10_000, help="actions a graph")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-ray", action="store_true")
    parser.add_argument("--without-profile", action="store_true")
    asyncio.run(bench(parser.parse_args()))


if __name__ == "__main__":
    main()
