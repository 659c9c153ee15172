"""Measurements of the leader by its node and its metrics: CPU, memory, series, requests."""

import re
from collections import Counter

import psutil
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.machine import Machine

_WRITES = ("apply", "create", "delete", "patch", "update")
_LINE = re.compile(r'^flowmesh_api_requests_total\{resource="(.+?)",verb="(.+?)"\} (\S+)$', re.M)
_METRICS = """
import ssl, sys, urllib.request
asked = urllib.request.Request("https://127.0.0.1:8470/metrics",
                               headers={"Authorization": "Bearer " + sys.stdin.read().strip()})
print(urllib.request.urlopen(asked, context=ssl._create_unverified_context()).read().decode())
"""


def metrics(fabric: Fabric) -> str:
    """Returns its current ``/metrics``."""
    return fabric.kube.run("exec", f"--namespace={NAMESPACE}", "--stdin", fabric.leader(),
                           "--container=operator", "--", "python", "-c", _METRICS,
                           given=fabric.kube.token())  # fmt: skip


def series(fabric: Fabric) -> int:
    """Returns the number of exported series."""
    return sum(bool(line) and not line.startswith("#") for line in metrics(fabric).splitlines())


def writes(fabric: Fabric) -> Counter[str]:
    """Returns its writes to the API server so far, by verb and resource, without its Lease."""
    said = metrics(fabric)
    found = {(verb, resource): float(count) for resource, verb, count in _LINE.findall(said)}
    assert found, said[:2000]
    return Counter({
        f"{verb} {resource}": round(count) for (verb, resource), count in found.items()
        if verb in _WRITES and resource != "leases"
    })  # fmt: skip


def processes(fabric: Fabric, machine: Machine) -> list[psutil.Process]:
    """Returns the processes of its pod."""
    pod = fabric.kube.get("pod", fabric.leader(), f"--namespace={NAMESPACE}")
    return [psutil.Process(pid) for pid in machine.processes(pod, "operator")]


def cpu_and_memory(fabric: Fabric, machine: Machine) -> tuple[float, int]:
    """Returns its CPU seconds so far and its resident bytes."""
    found = processes(fabric, machine)
    times = [process.cpu_times() for process in found]
    return sum(t.user + t.system for t in times), resident(found)


def resident(found: list[psutil.Process]) -> int:
    """Returns the resident bytes of processes."""
    return sum(process.memory_info().rss for process in found)
