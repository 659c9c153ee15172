"""A Prometheus that scrapes the leader, as the chart's ServiceMonitor configures it."""

import base64
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import program
from hack.dashboards.prometheus import Prometheus, scraping

_FORWARDING = re.compile(r"Forwarding from (127\.0\.0\.1:\d+)")


@contextmanager
def run_prometheus(fabric: Fabric, folder: Path, rules: Path | None = None) -> Iterator[Prometheus]:
    """Scrapes the current leader, with a checked certificate and the user's token."""
    where = f"--namespace={NAMESPACE}"
    secret = fabric.kube.get("secret", "flowmesh-gateway-tls", where)["data"]
    authority = folder / "ca.crt"
    authority.write_bytes(base64.b64decode(secret["ca.crt"]))
    tls = {"ca_file": str(authority), "server_name": f"flowmesh-gateway.{NAMESPACE}.svc"}
    words = ["port-forward", where, f"pod/{fabric.leader()}", ":8470"]
    forward = subprocess.Popen([program("kubectl"), *words], env=fabric.kube.environment,
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True)  # fmt: skip
    try:
        assert forward.stdout is not None
        said = _FORWARDING.match(forward.stdout.readline())
        assert said, "kubectl port-forward does not say where it listens"
        token, labels = fabric.kube.token(), {"namespace": NAMESPACE}
        with scraping(
            f"https://{said[1]}", folder, token=token, tls=tls, labels=labels, rules=rules
        ) as server:
            yield server
    finally:
        forward.terminate()
        forward.communicate()
