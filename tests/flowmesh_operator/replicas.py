"""Replicas of the operator and workers as processes, on a real API server and a directory."""

import asyncio
import contextlib
import itertools
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from tests.blob_views import blobs_of
from tests.flowmesh_control.fabric import sealed
from tests.flowmesh_operator.api_server import ApiServer, until

from flowmesh_control.records.keys import final_key
from flowmesh_control.records.run_records import FinalRecord, final_decoder
from flowmesh_core.sharing.scopes import namespace_scope
from flowmesh_core.units import Digest
from flowmesh_operator.kube.client import KubeClient
from flowmesh_store.store import Store, open_store

WORKER_TOKEN = "worker-token"
API_VERSION = "flowmesh.dev/v1alpha1"
_WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE"})
_numbers = itertools.count(1)


def _label(line: str, name: str) -> str:
    return line.partition(f'{name}="')[2].partition('"')[0]


@dataclass
class Replicas:
    """The operator's processes and their surroundings.

    Attributes:
        own: the operator's namespace: a new one, with its own Lease.
        port: the gateway's port; replicas share it, since only one leads.
    """

    server: ApiServer
    root: Path
    own: str
    port: int
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def operator(self, name: str, **more: str) -> "subprocess.Popen[bytes]":
        """Starts a replica; the variables override the defaults."""
        variables = {
            "KUBECONFIG": str(self.server.kubeconfig),
            "FLOWMESH_STORE": str(self.root / "store"),
            "FLOWMESH_MASTER_KEY_FILE": str(self.root / "key"),
            "FLOWMESH_NAMESPACE": self.own,
            "FLOWMESH_IDENTITY": name,
            "FLOWMESH_GATEWAY_HOST": "127.0.0.1",
            "FLOWMESH_GATEWAY_PORT": str(self.port),
            "FLOWMESH_WORKER_TOKEN": WORKER_TOKEN,
            "FLOWMESH_SYNC_WINDOW_S": "1",
            **more,
        }
        return self._start(name, ["flowmesh_operator"], variables)

    def worker(self, name: str, *more: str, host: str = "127.0.0.1") -> "subprocess.Popen[bytes]":
        """Starts a worker; the arguments override the defaults."""
        arguments = ["--gateway", f"ws://{host}:{self.port}", "--name", name]
        arguments += ["--store", str(self.root / "store")]
        arguments += ["--cache-dir", str(self.root / f"cache-{name}-{secrets.token_hex(2)}")]
        arguments += ["--price-usd-per-hour", "3.6", "--memory-mib", "2048", "--cpus", "1"]
        arguments += ["--orphan-timeout", "60", "--grace", "1", *more]
        variables = {"FLOWMESH_WORKER_TOKEN": WORKER_TOKEN}
        return self._start(name, ["flowmesh_worker", *arguments], variables)

    def log(self, name: str) -> str:
        """Returns the log of a process."""
        return (self.root / f"{name}.log").read_text()

    def phase(self, uid: str) -> str:
        """Returns a run's final phase from the store; empty before its end."""
        record = self._stored(lambda store: sealed(store).read(final_key(uid)))
        return "" if record is None else final_decoder.decode(record.data).status.phase

    def final(self, uid: str) -> FinalRecord:
        """Returns the record of an ended run."""
        record = self._stored(lambda store: sealed(store).read(final_key(uid)))
        return final_decoder.decode(record.data)

    def blob(self, digest: str, namespace: str) -> bytes:
        """Returns a blob of a namespace."""
        scope = namespace_scope(namespace)
        return bytes(self._stored(lambda store: blobs_of(store, scope).get(Digest(digest))))

    def _stored(self, read: Callable[[Store], Awaitable[Any]]) -> Any:
        store = open_store(self.root / "store")

        async def ask() -> Any:
            return await read(store)

        try:
            return asyncio.run(ask())
        finally:
            store.close()

    def leads(self, name: str) -> bool:
        """Returns whether a replica logged that it leads and its control plane is up."""
        process = self.processes[name]
        assert process.poll() is None, self.log(name)
        return "runs recovered" in self.log(name)

    def watches(self, name: str) -> bool:
        """Returns whether a replica watches, from its log."""
        process = self.processes[name]
        assert process.poll() is None, self.log(name)
        return "watches" in self.log(name)

    def end(self, name: str, number: int = signal.SIGTERM, within_s: float = 20.0) -> int:
        """Signals a process and waits for its end; returns its code."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(within_s)

    def close(self) -> None:
        """Ends everything."""
        for process in self.processes.values():
            process.kill()
            process.send_signal(signal.SIGCONT)
        for process in self.processes.values():
            process.wait()
        self.processes.clear()

    def _start(
        self, name: str, words: list[str], variables: dict[str, str]
    ) -> "subprocess.Popen[bytes]":
        with (self.root / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *words],
                env={**os.environ, **variables},
                stderr=log,
                stdout=log,
            )
        self.processes[name] = process
        return process


@contextlib.contextmanager
def replicas(server: ApiServer, root: Path) -> Iterator[Replicas]:
    """Yields replicas without a process; ends all started ones afterwards."""
    (root / "key").write_bytes(b"k" * 32)
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    made = Replicas(server, root, server.namespace(), port)
    try:
        yield made
    finally:
        made.close()


@contextlib.asynccontextmanager
async def connected(server: ApiServer) -> AsyncIterator[KubeClient]:
    """Yields the administrator's client of the API server."""
    found = Configuration()
    await config.load_kube_config(str(server.kubeconfig), client_configuration=found)
    client = ApiClient(configuration=found)
    try:
        yield KubeClient(client)
    finally:
        await client.close()


@dataclass(frozen=True)
class Objects:
    """Workflow objects of one namespace."""

    server: ApiServer
    namespace: str

    def apply(self, *documents: dict[str, Any]) -> None:
        """Creates or changes objects."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        self.server.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(listed))

    def workflow(self, name: str, *steps: dict[str, Any], **spec: Any) -> dict[str, Any]:
        """A document."""
        return {
            "apiVersion": API_VERSION,
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"steps": list(steps), **spec},
        }

    def status(self, name: str) -> dict[str, Any]:
        """Returns an object's status."""
        found = self.server.get("fmw", name, "-n", self.namespace).get("status") or {}
        assert isinstance(found, dict)
        return found

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        """Returns a condition; empty if missing."""
        found = self.status(name).get("conditions") or []
        return next((c for c in found if c["type"] == kind), {})

    def wait(self, name: str, condition: str = "Complete", within_s: int = 60) -> None:
        """Runs ``kubectl wait``."""
        self.server.kubectl(
            "wait", f"--for=condition={condition}", f"fmw/{name}", "-n", self.namespace,
            f"--timeout={within_s}s",
        )  # fmt: skip

    def uid(self, name: str) -> str:
        """Returns an object's uid."""
        return str(self.server.get("fmw", name, "-n", self.namespace)["metadata"]["uid"])

    def exists(self, name: str) -> bool:
        """Returns whether an object exists."""
        words = ("get", "fmw", name, "-n", self.namespace, "--ignore-not-found", "-oname")
        return bool(self.server.kubectl(*words).stdout)

    def all(self) -> list[dict[str, Any]]:
        """Every object."""
        found: list[dict[str, Any]] = self.server.get("fmw", "-n", self.namespace)["items"]
        return found

    def delete_all(self) -> None:
        """Deletes all in one request."""
        path = f"/apis/{API_VERSION}/namespaces/{self.namespace}/flowmeshworkflows"
        self.server.kubectl("delete", "--raw", path)

    def counts(self, **states: int) -> dict[str, int]:
        """Returns the field ``counts`` of a run with the numbers of steps in these states."""
        names = ("pending", "ready", "running", "completed", "skipped", "failed", "cancelled")
        return {"total": sum(states.values()), **dict.fromkeys(names, 0), **states}

    def events(self, reason: str) -> int:
        """Returns the number of Events with a reason."""
        words = ("get", "events", "-n", self.namespace, f"--field-selector=reason={reason}")
        return len(self.server.kubectl(*words, "-oname").stdout.split())

    def written(self) -> tuple[int, int]:
        """Returns the numbers of status writes and of other writes of workflows so far."""
        text = self.server.kubectl("get", "--raw", "/metrics").stdout
        statuses = others = 0
        for line in text.splitlines():
            if (
                not line.startswith("apiserver_request_total{")
                or _label(line, "verb") not in _WRITES
            ):
                continue
            count, resource = int(float(line.rpartition(" ")[2])), _label(line, "resource")
            if _label(line, "subresource") == "status":
                statuses += count
            elif resource in ("flowmeshworkflows", "events") and _label(line, "verb") != "APPLY":
                others += count
        return statuses, others

    def settle(self) -> None:
        """Waits for two renewals of the Lease: time that passes for the operator, not the test."""

        seen: set[str] = set()

        def renewed() -> bool:
            found = self.server.get("leases", "-A")["items"]
            seen.add(str([lease["spec"].get("renewTime") for lease in found]))
            return len(seen) > 2

        until(renewed, "the Lease is renewed", 20)

    def until(self, name: str, within_s: float = 60.0, **fields: Any) -> None:
        """Waits until the status has these fields."""

        def holds() -> bool:
            status = self.status(name)
            return all(status.get(key) == value for key, value in fields.items())

        until(holds, f"{name} has {fields}; it has {self.status(name)}", within_s)


def sleep(name: str, seconds: float) -> dict[str, Any]:
    """Returns a step that waits, different in each test."""
    step = noop(name)
    return {**step, "uses": "test.sleep", "with": {**step["with"], "seconds": seconds}}


def noop(name: str, **more: Any) -> dict[str, Any]:
    """Returns a step that does nothing, different in each test."""
    value = {"value": f"{os.getpid()}-{next(_numbers)}-{time.time_ns()}"}
    return {"name": name, "uses": "test.noop", "with": value, **more}
