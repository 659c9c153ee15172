"""A control plane in this process and workers in their own, on one directory."""

import asyncio
import os
import secrets
import ssl
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import ClientSession

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.auth.tls_certificate import TlsCertificate
from flowmesh_control.auth.users import NamespaceLabels, StaticUsers, Users, no_labels
from flowmesh_control.auth.worker_tokens import StaticWorkerTokens
from flowmesh_control.control_plane import ControlPlane
from flowmesh_control.loop.clock import Clock, system_clock
from flowmesh_control.loop.event_loop import EventLoop
from flowmesh_control.settings import ControlSettings
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.machine.machine import Machine
from flowmesh_core.machine.settings import Settings
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.sharing.seals import Seals
from flowmesh_core.spec.secrets import SecretValue
from flowmesh_store.durability import Durability
from flowmesh_store.sealed_records import SealedRecords
from flowmesh_store.store import Store, open_store

API_TOKEN = "api-token"
WORKER_TOKEN = "worker-token"
KEY = KeyRing.of(b"k" * 32)


class NoSecrets:
    async def read(
        self, namespace: str, names: tuple[str, ...], engine: str
    ) -> dict[str, SecretValue]:
        raise FlowMeshError(f"namespace {namespace} has no secrets {names}")


def control_plane(
    root: Path,
    clock: Clock = system_clock,
    users: Users = StaticUsers(API_TOKEN),  # noqa: B008 - it holds nothing that changes
    certificate: TlsCertificate | None = None,
    settings: ControlSettings = ControlSettings(),  # noqa: B008 - frozen
    labels: NamespaceLabels = no_labels,
    state_folder: Path | None = None,
    key_ring: KeyRing = KEY,
    **machine: Any,
) -> ControlPlane:
    return ControlPlane(
        open_store(root / "store", durability=Durability.PROCESS),
        replace(
            settings,
            machine=Settings(**{"sync_window_s": 1.0, **machine}),
            flush_s=0.2,
        ),
        catalog=load_catalog(),
        key_ring=key_ring,
        users=users,
        tokens=StaticWorkerTokens({"local": WORKER_TOKEN}),
        secrets=NoSecrets(),
        certificate=certificate,
        labels=labels,
        clock=clock,
        state_folder=state_folder,
    )


def sealed(store: Store) -> SealedRecords:
    """Returns the store's records as a control plane reads and writes them."""
    return SealedRecords(store.records, Seals(KEY), refused=lambda _: None)


def machine_of(control: ControlPlane) -> Machine:
    """The machine behind a running control plane, which shows nobody else its state."""
    machine = loop_of(control).machine
    assert isinstance(machine, Machine)
    return machine


def loop_of(control: ControlPlane) -> EventLoop:
    return control._started().loop


@dataclass
class Fabric:
    root: Path
    control: ControlPlane
    http: ClientSession
    workers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    authority: Path | None = None
    token: str = API_TOKEN

    def worker(self, name: str, *more: str) -> "subprocess.Popen[bytes]":
        """Starts a worker process, with more arguments that stand over the usual ones."""
        log = (self.root / f"{name}.log").open("ab")
        gateway = self.control.url.replace("http", "ws", 1)
        arguments = ["--gateway", gateway, "--store", str(self.root / "store"), "--name", name]
        arguments += ["--cache-dir", str(self.root / f"cache-{name}-{secrets.token_hex(2)}")]
        arguments += ["--price-usd-per-hour", "3.6", "--memory-mib", "2048", "--cpus", "1"]
        arguments += ["--orphan-timeout", "60", "--grace", "1", *more]
        process = subprocess.Popen(
            [sys.executable, "-m", "flowmesh_worker", *arguments],
            env={**os.environ, "FLOWMESH_WORKER_TOKEN": WORKER_TOKEN},
            stderr=log,
            stdout=log,
        )
        log.close()
        self.workers[name] = process
        return process

    async def call(
        self, method: str, path: str, *, body: Any = None, data: Any = None, status: int = 200
    ) -> Any:
        payload = msgspec.json.encode(body) if body is not None else data
        async with self.http.request(
            method,
            self.control.url + path,
            data=payload,
            headers={"Authorization": f"Bearer {self.token}"},
            ssl=self.authority is None or ssl.create_default_context(cafile=self.authority),
        ) as response:
            content = await response.read()
            assert response.status == status, (response.status, content[:2000])
            if response.content_type == "application/json":
                return msgspec.json.decode(content)
            return content

    async def submit(self, document: Mapping[str, Any], **more: Any) -> str:
        accepted = await self.call(
            "POST", "/v1/runs", body={"document": document, **more}, status=201
        )
        return str(accepted["uid"])

    async def ended(self, uid: str, *, within_s: float = 400.0) -> RunStatus:
        """The run's status once it has ended."""
        async with asyncio.timeout(within_s):
            data = await self.call("GET", f"/v1/runs/{uid}/watch")
        return msgspec.json.decode(data.splitlines()[-1], type=RunStatus)

    def close(self) -> None:
        for process in self.workers.values():
            process.terminate()
        for process in self.workers.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def workflow(name: str, spec: Mapping[str, Any], namespace: str = "team-a") -> dict[str, Any]:
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": name, "namespace": namespace},
        "spec": dict(spec),
    }
