"""Which TCP connections open between pods, tried from inside of the pods' networks."""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from e2e.harness.client_pod import BASE_IMAGE
from e2e.harness.fabric import NAMESPACE
from e2e.harness.kube import Json, Kube, until
from e2e.harness.machine import Machine

DNS_PORT = 53
"""The port of pods of :func:`bystander`, which looks like the one of a DNS server."""
_PROBE = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def opens(where):
    try:
        socket.create_connection(where, 3).close()
    except OSError:
        return False
    return True
where = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(where)) as threads:
    print(json.dumps(list(threads.map(opens, map(tuple, where)))))
"""
_WITHIN_S = 10.0


@dataclass(frozen=True, order=True)
class Target:
    """A port at an address: of a pod, of the Service that leads to it, or of the node."""

    name: str
    port: int
    address: str

    def __str__(self) -> str:
        return f"{self.name}:{self.port} at {self.address}"


Edge = tuple[str, Target]
"""A source, by its name, and a target."""


def bystander(kube: Kube, namespace: str, name: str, labels: Mapping[str, str]) -> Json:
    """Creates a pod that listens on :data:`DNS_PORT`; returns it once it does."""
    container = {
        "name": "listens",
        "image": BASE_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-m", "http.server", str(DNS_PORT)],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "readinessProbe": {"tcpSocket": {"port": DNS_PORT}, "periodSeconds": 1},
    }
    kube.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": dict(labels)},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        }
    )
    where = f"--namespace={namespace}"
    kube.run("wait", f"pod/{name}", where, "--for=condition=Ready", "--timeout=300s")
    return kube.get("pod", name, where)


def opened(machine: Machine, sources: Mapping[str, Json], edges: Collection[Edge]) -> set[Edge]:
    """Tries connections; returns those that opened."""

    def tried(source: str) -> set[Edge]:
        targets = [target for name, target in edges if name == source]
        where = json.dumps([(target.address, target.port) for target in targets])
        command = machine.in_network(sources[source], [sys.executable, "-c", _PROBE, where])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{source}: {done.stderr}"
        outcomes = json.loads(done.stdout)
        return {(source, t) for t, opens in zip(targets, outcomes, strict=True) if opens}

    with ThreadPoolExecutor(4) as threads:
        return set().union(*threads.map(tried, {source for source, _ in edges}))


def only_opens(
    machine: Machine, sources: Mapping[str, Json], edges: Collection[Edge], expected: set[Edge]
) -> None:
    """Waits until just these connections open: policies apply some time after they are written.

    Raises:
        AssertionError: not in time; names the connections that differ.
    """
    found: list[set[Edge]] = []

    def settled() -> bool:
        found.append(opened(machine, sources, edges))
        return found[-1] == expected

    try:
        until(settled, "connections open as the policies say", _WITHIN_S)
    except AssertionError as e:
        closed, opens = (
            [f"{source} to {target}" for source, target in sorted(some)]
            for some in (expected - found[-1], found[-1] - expected)
        )
        raise AssertionError(f"{e}; closed: {closed}; open: {opens}") from None


@contextmanager
def extra_policy(kube: Kube, name: str, spec: Mapping[str, Any]) -> Iterator[None]:
    """Allows connections of the fabric's pods that its own policies close.

    Args:
        kube: the cluster.
        name: of the NetworkPolicy.
        spec: of the NetworkPolicy.
    """
    meta = {"name": name, "namespace": NAMESPACE}
    kind = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    kube.apply({**kind, "metadata": meta, "spec": dict(spec)})
    try:
        yield
    finally:
        kube.run("delete", "networkpolicy", name, f"--namespace={NAMESPACE}")
