"""Many workflows: two hundred at once, and a leader that starts with thousands of ended ones."""

import json
import time
from collections.abc import Callable

import pytest
from e2e.harness.fabric import NAMESPACE, Fabric, workflow
from e2e.harness.kube import until
from e2e.harness.leader import cpu_and_memory, writes
from e2e.harness.machine import Machine

MANY, WAVE = 200, 500
MOST_WRITES = 4
"""A workflow: three, and a status a second, of which such a short one has one or two."""


@pytest.mark.full
def test_two_hundred_workflows_at_once(
    fabric: Fabric, machine: Machine, tenant: Callable[[], str], print_line: Callable[[str], None]
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
    print_line(
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


@pytest.mark.full
@pytest.mark.timeout(5400)
def test_a_leader_starts_beside_thousands_of_ended_workflows(
    fabric: Fabric,
    machine: Machine,
    tenant: Callable[[], str],
    print_line: Callable[[str], None],
    ended: int,
) -> None:
    start, waves = time.monotonic(), [range(n, min(n + WAVE, ended)) for n in range(0, ended, WAVE)]
    fabric.install("pools.thin.minReplicas=1", "crds.upgrade=false")
    teams = [tenant() for _ in waves]  # one for each wave: waiting for a wave lists no other
    for number, wave in enumerate(waves):
        create(fabric, teams[number], wave)
        if number:  # the next wave is created while this one ends
            all_of(fabric, teams[number - 1], waves[number - 1])
    all_of(fabric, teams[-1], waves[-1])
    made, team = time.monotonic() - start, teams[-1]
    listed = timed(lambda: fabric.kube.run("get", "fmw", "--all-namespaces"))
    memory = cpu_and_memory(fabric, machine)[1]
    times = [taken_over(fabric, team, f"after-{n}") for n in range(2)]
    print_line(
        f"{ended} ended workflows ({ended / made:.1f}/s): kubectl get takes {listed:.1f} s, the"
        f" leader holds {memory >> 20} MiB; a leader that is killed is followed after"
        f" {times[0][0]:.1f} s, and a new workflow complete after {times[0][1]:.1f} s; the next one"
        f" after {times[1][0]:.1f} s and {times[1][1]:.1f} s; it holds"
        f" {cpu_and_memory(fabric, machine)[1] >> 20} MiB"
    )
    assert sum(completed(fabric, one) for one in teams) == ended + len(times)
    fabric.install()


def create(fabric: Fabric, team: str, numbers: range) -> None:
    """Creates workflows of one step that does nothing, all at once."""
    items = [
        workflow(team, f"e-{number}",
                 {"steps": [{"name": "a", "uses": "test.noop", "with": {"value": f"e{number}"}}]})
        for number in numbers
    ]  # fmt: skip
    listed = {"apiVersion": "v1", "kind": "List", "items": items}
    fabric.kube.run("create", "--filename=-", given=json.dumps(listed))


def all_of(fabric: Fabric, team: str, wave: range) -> None:
    until(lambda: completed(fabric, team) == len(wave), f"{wave} are complete", 240)


def taken_over(fabric: Fabric, team: str, name: str) -> tuple[float, float]:
    """Kills the leader; returns the seconds until another leads and completes a workflow."""
    until(lambda: operators_ready(fabric) == 2, "two operators are ready", 120)
    leader, start = fabric.leader(), time.monotonic()
    fabric.kube.run("delete", "pod", leader, f"--namespace={NAMESPACE}", "--grace-period=0",
                    "--force")  # fmt: skip
    fabric.submit(team, name, {"steps": [{"name": "a", "uses": "test.noop",
                                          "with": {"value": name}}]})  # fmt: skip
    until(lambda: fabric.leaders() not in ([], [leader]), "another leads", 120)
    leads = time.monotonic() - start
    fabric.completed(team, name, 240)
    return leads, time.monotonic() - start


def operators_ready(fabric: Fabric) -> int:
    found = fabric.kube.get("deployment", "flowmesh-operator", f"--namespace={NAMESPACE}")
    return int((found.get("status") or {}).get("readyReplicas", 0))


def timed(work: Callable[[], object]) -> float:
    start = time.monotonic()
    work()
    return time.monotonic() - start
