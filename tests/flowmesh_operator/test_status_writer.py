"""Timing of status writes: a fake API server whose writes take a given time."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.virtual_time import in_virtual_time

from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_control.queries.live_runs import RunTerms
from flowmesh_operator.kube.client import ApiError
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.workflows.status_writer import (
    LARGE_STEPS,
    LARGE_TIMEOUT_S,
    PROJECTION_FACTOR,
    REST,
    SLOW_S,
    StatusWriter,
)

LARGE_WRITE_S, SMALL_WRITE_S = 2.0, 0.01


@dataclass
class Server:
    """A fake server whose patches take time by the object's size."""

    mirror: InformerCache
    large: set[str]
    timeout_s: float = 10.0
    in_flight: set[str] = field(default_factory=set)
    most: dict[str, int] = field(default_factory=lambda: {"large": 0, "one object": 0})
    patches: list[tuple[float, str]] = field(default_factory=list)
    timeouts_s: set[tuple[bool, float]] = field(default_factory=set)
    busy_s: float = 0.0

    def with_single_try(self, timeout_s: float) -> Any:
        server = self

        class Other:
            async def patch_status(self, *where: Any) -> Any:
                return await server.patch_status(*where, timeout_s=timeout_s)

        return Other()

    async def patch_status(self, *where: Any, timeout_s: float = 10.0) -> Any:
        *_, name, body = where
        large = name in self.large
        self.timeouts_s.add((large, timeout_s))
        assert name not in self.in_flight, "one write at a time of an object"
        self.in_flight.add(name)
        self.most["large"] = max(self.most["large"], len(self.in_flight & self.large))
        self.patches.append((asyncio.get_running_loop().time(), name))
        await asyncio.sleep(LARGE_WRITE_S if large else SMALL_WRITE_S)
        self.busy_s += LARGE_WRITE_S if large else 0.0
        self.in_flight.discard(name)
        obj = self.mirror.workflows[name]
        if body["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise ApiError("conflict", status=409, where=name)
        version = str(int(obj["metadata"]["resourceVersion"]) + 1)
        meta = {**obj["metadata"], "resourceVersion": version}
        return {**obj, "metadata": meta, "status": {**obj.get("status", {}), **body["status"]}}


@dataclass
class Bench:
    server: Server
    writer: StatusWriter
    executed: dict[str, int]

    def work(self, *names: str) -> None:
        """Reports progress of a run of each object."""
        for name in names:
            self.executed[name] = self.executed.get(name, 0) + 1
            self.writer.follow(name)

    def times(self, name: str) -> list[float]:
        return [at_s for at_s, patched in self.server.patches if patched == name]


@contextlib.asynccontextmanager
async def serving(*names: str, large: set[str]) -> AsyncIterator[Bench]:
    mirror = InformerCache()
    for name in names:
        meta = {"uid": name, "name": name, "namespace": "team-a", "generation": 1}
        obj = {"metadata": {**meta, "resourceVersion": "1"}, "spec": {}, "status": {}}
        mirror.update("workflows", "ADDED", obj)
    executed: dict[str, int] = {}
    of_many_steps = frozenset(large)
    loop = asyncio.get_running_loop()

    class Runs:
        def live_uids(self) -> set[str]:
            raise AssertionError("a writer of statuses asks for single runs")

        def terms(self, uid: str) -> RunTerms:
            return RunTerms(False, 0, 0, 0.0, steps=LARGE_STEPS + 1 if uid in of_many_steps else 0)

        async def status(self, uid: str) -> RunStatus:
            steps = tuple(StepStatus(f"s{i}", "test.noop", "RUNNING") for i in range(3))
            done = {"COMPLETED": executed.get(uid, 0)}
            return RunStatus(
                uid, uid, "team-a", "Running", 1.0, steps=steps, counts=done,
                executed=executed.get(uid, 0),
            )  # fmt: skip

    class Leading:
        number = 1

        def now_s(self) -> float:
            return loop.time()

        def is_steady(self) -> bool:
            return True

    class NoDocuments:
        async def store(self, run: RunStatus, labels: Mapping[str, str]) -> str:
            raise AssertionError(f"the status of {run.uid} fits into its object")

    server = Server(mirror, large)
    writer = StatusWriter(
        server,  # type: ignore[arg-type]
        mirror,
        runs=Runs(),
        epoch=Leading(),
        documents=NoDocuments(),
    )
    writer._clock = loop.time
    serving = [asyncio.create_task(writer.serve()) for _ in range(8)]
    serving.append(asyncio.create_task(writer.serve_large()))
    for name in names:
        writer.set_generation(name, 1)
    yield Bench(server, writer, executed)
    for task in serving:
        task.cancel()
    await asyncio.gather(*serving, return_exceptions=True)


@in_virtual_time
async def test_large_objects_are_written_one_at_a_time_and_for_a_part_of_the_time() -> None:
    large = {f"large-{i}" for i in range(20)}
    async with serving(*sorted(large), large=large) as bench:
        for _ in range(600):
            bench.work(*sorted(large))
            await asyncio.sleep(1.0)
        assert bench.server.most["large"] == 1
        assert 0 < bench.server.busy_s <= 600 / (1 + REST) + LARGE_WRITE_S
        # None is left behind by the others.
        counts = [len(bench.times(name)) for name in large]
        assert min(counts) >= max(counts) - 1 > 0
        assert bench.server.timeouts_s == {(True, LARGE_TIMEOUT_S)}


@in_virtual_time
async def test_the_longer_a_large_object_takes_the_less_often_it_is_written() -> None:
    async with serving("large", large={"large"}) as bench:
        for _ in range(200):
            bench.work("large")
            await asyncio.sleep(1.0)
        times = bench.times("large")
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert len(gaps) >= 3
        assert min(gaps) >= PROJECTION_FACTOR * LARGE_WRITE_S


@in_virtual_time
async def test_small_objects_do_not_wait_for_large_ones() -> None:
    large = {f"large-{i}" for i in range(20)}
    async with serving(*sorted(large), "small", large=large) as bench:
        for _ in range(60):
            bench.work(*sorted(large), "small")
            await asyncio.sleep(1.0)
        assert len(bench.times("small")) >= 55


@in_virtual_time
async def test_an_object_whose_write_was_slow_counts_as_large_from_then_on() -> None:
    """It has a large spec with few steps, or the API server is slow for all."""
    assert LARGE_WRITE_S > SLOW_S
    async with serving("wide", "broad", large=set()) as bench:
        bench.server.large |= {"wide", "broad"}
        for _ in range(200):
            bench.work("wide", "broad")
            await asyncio.sleep(1.0)
        assert bench.server.most["large"] == 2  # the first time, before it is known
        later = [at_s for at_s, _ in bench.server.patches][2:]
        assert len(later) >= 6
        assert all(b - a >= LARGE_WRITE_S for a, b in itertools.pairwise(later))
