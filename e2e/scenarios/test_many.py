"""Two hundred workflows at once: how fast they end, and what they cost the operator."""

import re
import time
from collections import Counter
from collections.abc import Callable

import psutil
import pytest
from e2e.harness.fabric import NAMESPACE, Fabric, workflow
from e2e.harness.kube import until
from e2e.harness.machine import Machine

MANY = 200
MOST_WRITES = 4
"""A workflow: three, and a status a second, of which such a short one has one or two."""
_WRITES = ("apply", "create", "delete", "patch", "update")
_LINE = re.compile(r'^flowmesh_api_requests_total\{resource="(.+?)",verb="(.+?)"\} (\S+)$', re.M)
_METRICS = """
import ssl, sys, urllib.request
asked = urllib.request.Request("https://127.0.0.1:8470/metrics",
                               headers={"Authorization": "Bearer " + sys.stdin.read().strip()})
print(urllib.request.urlopen(asked, context=ssl._create_unverified_context()).read().decode())
"""


@pytest.mark.full
def test_two_hundred_workflows_at_once(
    fabric: Fabric, machine: Machine, tenant: Callable[[], str], told: Callable[[str], None]
) -> None:
    team = tenant()
    fabric.install("pools.thin.minReplicas=1", "crds.upgrade=false")
    until(lambda: pool_ready(fabric) == 1, "a worker is ready", 120)
    before, cpu_before = writes(fabric), cpu_and_memory(fabric, machine)[0]
    start = time.monotonic()
    fabric.kube.apply(*(
        workflow(team, f"n-{number}",
                 {"steps": [{"name": "a", "uses": "test.noop", "with": {"value": number}}]})
        for number in range(MANY)
    ))  # fmt: skip
    applied = time.monotonic() - start
    until(lambda: completed(fabric, team) == MANY, "all complete", 240)
    took = time.monotonic() - start
    cpu, memory = cpu_and_memory(fabric, machine)
    after = writes(fabric)
    made = {kind: count / MANY for kind, count in (after - before).items()}
    told(
        f"{MANY} workflows: applied in {applied:.1f} s, all complete after {took:.1f} s"
        f" ({MANY / took:.1f}/s); the leader's CPU {cpu - cpu_before:.1f} s, memory"
        f" {memory >> 20} MiB; writes a workflow {sum(made.values()):.2f}: {made}"
    )
    assert sum(made.values()) <= MOST_WRITES
    fabric.install()


def completed(fabric: Fabric, team: str) -> int:
    path = '{range .items[*]}{.status.conditions[?(@.type=="Complete")].status}{"\\n"}{end}'
    said = fabric.kube.run(
        "get", "fmw", f"--namespace={team}", f"--output=jsonpath={path}", ok=False
    )
    return said.split().count("True")


def pool_ready(fabric: Fabric) -> int:
    found = fabric.kube.get("fmwp", "thin", f"--namespace={NAMESPACE}")
    return int((found.get("status") or {}).get("ready", 0))


def writes(fabric: Fabric) -> Counter[str]:
    """The leader's writes to the API server so far, by verb and resource, its lease apart."""
    leader = fabric.leader()
    said = fabric.kube.run("exec", f"--namespace={NAMESPACE}", "--stdin", leader,
                           "--container=operator", "--", "python", "-c", _METRICS,
                           given=fabric.kube.token())  # fmt: skip
    found = {(verb, resource): float(count) for resource, verb, count in _LINE.findall(said)}
    assert found, said[:2000]
    return Counter({
        f"{verb} {resource}": round(count) for (verb, resource), count in found.items()
        if verb in _WRITES and resource != "leases"
    })  # fmt: skip


def cpu_and_memory(fabric: Fabric, machine: Machine) -> tuple[float, int]:
    """The leader's processor seconds so far, and its resident bytes."""
    leader = fabric.leader()
    pod = fabric.kube.get("pod", leader, f"--namespace={NAMESPACE}")
    processes = [psutil.Process(pid) for pid in machine.processes(pod, "operator")]
    times = [process.cpu_times() for process in processes]
    resident = sum(process.memory_info().rss for process in processes)
    return sum(t.user + t.system for t in times), resident
