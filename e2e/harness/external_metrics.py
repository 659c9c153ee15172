"""The External metrics API, served from a Prometheus outside of the cluster."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster import tools
from e2e.cluster.namespaces import HOST_ADDRESS
from e2e.cluster.paths import BINS
from e2e.harness.fabric import CHART
from e2e.harness.kube import Json, Kube, until
from hack.dashboards.prometheus import Prometheus

RULES = CHART / "adapter" / "external_rules.yaml"
_GROUP = "external.metrics.k8s.io"
_SERVICE = "external-metrics"
_WHERE = {"name": _SERVICE, "namespace": "kube-system"}


@contextlib.contextmanager
def external_metrics(kube: Kube, server: Prometheus, folder: Path) -> Iterator[None]:
    """Serves the External metrics API from a Prometheus, by the chart's rules.

    Args:
        kube: the cluster that gets the API.
        server: the Prometheus.
        folder: the folder of certificates and the log.
    """
    tools.build_external_metrics(BINS)
    port, config = _free_port(HOST_ADDRESS), str(kube.kubeconfig)
    words = [
        str(BINS / "external-metrics"),
        f"--config={RULES}",
        f"--prometheus-url={server.url}",
        f"--bind-address={HOST_ADDRESS}",
        f"--secure-port={port}",
        f"--cert-dir={folder}",
        *(f"--{who}-kubeconfig={config}" for who in ("authentication", "authorization", "lister")),
    ]
    log = folder / "external-metrics.log"
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out)
    try:
        kube.apply(*_api(port))
        until(lambda: _serves(kube), f"the API server reaches {_GROUP}; see {log}", 120)
        yield
    finally:
        kube.run("delete", "apiservice", f"v1beta1.{_GROUP}", "--ignore-not-found")
        kube.run("delete", "service", _SERVICE, "--namespace=kube-system", "--ignore-not-found")
        process.terminate()
        process.wait(30)


def _api(port: int) -> list[Json]:
    """Returns a Service that leads out of the cluster, and the API behind it."""
    labels = {"kubernetes.io/service-name": _SERVICE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _WHERE,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**_WHERE, "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [HOST_ADDRESS], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"v1beta1.{_GROUP}"},
            "spec": {
                "group": _GROUP,
                "version": "v1beta1",
                "service": {**_WHERE, "port": 443},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]


def _serves(kube: Kube) -> bool:
    said = kube.run("get", "--raw", f"/apis/{_GROUP}/v1beta1", ok=False)
    return bool(said) and json.loads(said).get("kind") == "APIResourceList"


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
