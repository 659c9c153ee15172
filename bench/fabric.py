"""A control plane with local workers, for the benchmarks."""

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.auth.users import StaticUsers
from flowmesh_control.auth.worker_tokens import StaticWorkerTokens
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.queries.downloads import manifest_of
from flowmesh_control.runs.admission import Submission
from flowmesh_control.services import ControlPlaneServices
from flowmesh_control.settings import ControlSettings
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.state import parse_attempt_id
from flowmesh_core.protocol.messages import Assignment
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.spec.secrets import SecretValue
from flowmesh_store.blobs import BlobView
from flowmesh_store.datasets import read_dataset
from flowmesh_store.store import open_store
from flowmesh_store.tree import fetch_tree

TOKEN = secrets.token_hex(16)
WORKERS = 2
MEMORY = "memory:"


class NoSecrets:
    """No step of this bench names a secret."""

    async def read(
        self, namespace: str, names: tuple[str, ...], engine: str
    ) -> dict[str, SecretValue]:
        """Refuses."""
        raise FlowMeshError(f"namespace {namespace} has no secrets {names}")


class Bench:
    """A control plane in this process, and worker processes.

    Attributes:
        waits_s: seconds from an action being ready to its message to a worker, for every attempt
            that was sent; the caller clears it.
    """

    def __init__(
        self, root: Path, *, workers: int = WORKERS, memory_mib: int = 1024, store: str = ""
    ) -> None:
        """Starts nothing yet.

        Args:
            root: an empty directory for the workers' caches, and the store unless another is named.
            workers: number of workers.
            memory_mib: memory of each worker.
            store: address of another store; workers cannot read a memory store, which is enough
                for results that are sent inside messages.
        """
        self._root = root
        self._count = workers
        self._memory_mib = memory_mib
        self._workers: list[subprocess.Popen[bytes]] = []
        self.waits_s: list[float] = []
        own_store = str(root / "store")
        self._workers_store = own_store if store == MEMORY else store or own_store
        self._control = ControlPlane(
            open_store(store or own_store),
            ControlSettings(),
            catalog=load_catalog(),
            key_ring=KeyRing.of(secrets.token_bytes(32)),
            users=StaticUsers(TOKEN),
            tokens=StaticWorkerTokens({"local": TOKEN}),
            secrets=NoSecrets(),
        )

    async def start(self) -> None:
        """Starts everything and waits until the workers have joined."""
        await self._control.start()
        gateway = self.services.gateway
        original_assign = gateway.assign

        def assign(
            worker: str, assignment: Assignment, generation: int, read_scopes: tuple[str, ...]
        ) -> None:
            actions = self.machine.state.actions
            action = actions.get(parse_attempt_id(assignment.attempt_id))
            if action is not None:
                self.waits_s.append(time.time() - action.ready_s)
            original_assign(worker, assignment, generation, read_scopes)

        gateway.assign = assign  # type: ignore[method-assign]
        for n in range(self._count):
            self._workers.append(self._worker(f"local-w{n}"))
        while len(self.machine.state.workers) < self._count:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def stop(self) -> None:
        """Ends the workers and the control plane."""
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            await asyncio.to_thread(worker.wait)
        await self._control.stop()

    @property
    def services(self) -> ControlPlaneServices:
        """The services of the running control plane."""
        return self._control.services

    @property
    def loop(self) -> EventLoop:
        """The event loop of the running control plane."""
        return self._control._started().loop

    @property
    def machine(self) -> Machine:
        """The machine of the running control plane."""
        machine = self.loop.machine
        if not isinstance(machine, Machine):
            raise TypeError(f"{machine!r} is not a Machine")
        return machine

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers, without their children."""
        return [worker.pid for worker in self._workers]

    @property
    def url(self) -> str:
        """Address of the control API."""
        return self._control.url

    async def submit(self, document: dict[str, object], namespace: str = "") -> str:
        """Submits a workflow; returns the run's uid."""
        submission = Submission(document, namespace=namespace)
        return (await self.services.admission.submit(submission)).uid

    async def ended(self, uid: str) -> RunStatus:
        """Waits for a run's end; returns its status."""
        views = self.services.views
        while not views.has_ended(uid):  # noqa: ASYNC110 - as a user would poll
            await asyncio.sleep(0.01)
        return await views.status(uid)

    async def rows(self, uid: str, output: str) -> list[dict[str, Any]]:
        """Returns the rows of a run's output."""
        services = self.services
        artifacts = (await services.views.outputs(uid))[output]
        blobs = await self._blobs(uid)
        found: list[dict[str, Any]] = []
        for artifact in artifacts:
            manifest = await manifest_of(blobs, artifact)
            found += await read_dataset(blobs.get, manifest)
        return found

    async def metrics(self, uid: str, output: str) -> dict[str, Any]:
        """Returns the metrics of a run's output."""
        [artifact] = (await self.services.views.outputs(uid))[output]
        data = await (await self._blobs(uid)).get(artifact.blob)
        return dict(json.loads(data))

    async def directory(self, uid: str, output: str, target: Path) -> None:
        """Fetches a run's model or adapter."""
        [artifact] = (await self.services.views.outputs(uid))[output]
        await fetch_tree(await self._blobs(uid), artifact.blob, target)

    async def _blobs(self, uid: str) -> BlobView:
        services = self._control.services
        scopes = await services.views.output_scopes(uid)
        return services.store.view(write=scopes[0], read=scopes)

    def hosts(self, engine: str) -> set[tuple[str, str]]:
        """Returns worker and signature of every current instance of an engine."""
        workers = self.machine.state.workers
        lanes = ((name, lane) for name, w in workers.items() for lane in w.instances)
        return {(name, lane.signature) for name, lane in lanes if lane.engine == engine}

    def _worker(self, name: str) -> "subprocess.Popen[bytes]":
        gateway = self._control.url.replace("http://", "ws://")
        arguments = ["--gateway", gateway, "--store", self._workers_store, "--name", name]
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
