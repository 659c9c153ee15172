"""Faults while three workflows run: all complete, nothing published runs again, accounts agree.

Two times are printed for each: when every workflow had completed a further step, and when all had
ended. `docs/kubernetes.md` has them in a table.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from e2e.harness.fabric import NAMESPACE, OPERATORS, Fabric
from e2e.harness.kube import Json, condition, program, until
from e2e.harness.load import Load, chains
from e2e.harness.machine import Machine
from e2e.harness.services import Service
from e2e.harness.user import User

POOL = "thin"
WORKERS = 3
HERE = f"--namespace={NAMESPACE}"
STEADY = (f"pools.{POOL}.minReplicas={WORKERS}", "crds.upgrade=false")
AWAY_S = 30.0
REQUESTS, REQUEST_EVERY_S = 600, 0.125
"""So that they last longer than the bucket is away."""
LOST_LEADERSHIP = 3
HUNGRY = "select len(list(range::varchar || repeat('x', 100))) as n from range(7000000)"
"""Needs about 800 MiB; the contract of data.sql states 512."""

Begin = Callable[..., Load]
PrintLine = Callable[[str], None]


@pytest.fixture(scope="module")
def steady(fabric: Fabric) -> Iterator[Fabric]:
    """Keeps a pool's workers, so that its growth is not measured."""
    fabric.install(*STEADY)
    yield fabric
    fabric.install("crds.upgrade=false")


@pytest.fixture
def begin(steady: Fabric, tenant: Callable[[], str]) -> Begin:
    """Submits the three workflows and waits until each has published something."""

    def make(query: str = "") -> Load:
        until(lambda: workers_ready(steady) == WORKERS, "all workers are ready", 120)
        load = Load(steady, [tenant() for _ in range(3)], chains(query=query))
        load.half_way()
        return load

    return make


@pytest.fixture
def recovers(
    print_line: PrintLine,
) -> Callable[[str, Load, Callable[[], tuple[float, float]]], None]:
    """Waits for the end, prints the times, and checks that everything happened once."""

    def check(fault: str, load: Load, going: Callable[[], tuple[float, float]]) -> None:
        on, ended = going()
        print_line(
            f"{fault}: each workflow went on after {on:.1f} s, all ended after {ended:.1f} s"
        )
        load.happened_once()

    return check


@pytest.fixture
def service(steady: Fabric, tmp_path: Path) -> Iterator[Service]:
    """A service with one ready replica, on one of the pool's workers."""
    team = "team-faults"
    steady.kube.namespace(team)
    user = User(steady, team, tmp_path)
    user.begin()
    made = Service(steady, user, "ask")
    made.apply({"min": 1, "max": 1})
    made.wait("Ready", 120)
    yield made
    made.delete()
    steady.kube.run("delete", "namespace", team, "--wait=false")


Recovers = Callable[[str, Load, Callable[[], tuple[float, float]]], None]


def test_a_worker_s_pod_is_deleted(steady: Fabric, begin: Begin, recovers: Recovers) -> None:
    load = begin()
    going = load.goes_on()
    kill(steady, load.busy_worker()["metadata"]["name"])
    recovers("worker's pod deleted", load, going)


@pytest.mark.full
def test_a_worker_is_killed_for_memory(
    steady: Fabric, machine: Machine, begin: Begin, recovers: Recovers
) -> None:
    load = begin()
    victim = load.busy_worker()
    going = load.goes_on()
    with machine.out_of_memory(victim, "worker"):
        until(lambda: ended(steady, victim).get("exitCode") is not None, "the worker ends", 60)
    assert ended(steady, victim)["reason"] == "OOMKilled"
    recovers("worker killed for memory", load, going)


@pytest.mark.full
def test_a_step_states_too_little_memory(begin: Begin, recovers: Recovers) -> None:
    load = begin(HUNGRY)
    recovers("too little memory stated", load, load.goes_on())
    assert load.failed_attempts() > 0, "512 MiB were enough, so that nothing is proven"


@pytest.mark.full
def test_a_worker_s_network_is_cut(
    steady: Fabric, machine: Machine, begin: Begin, recovers: Recovers
) -> None:
    load = begin()
    victim = load.busy_worker()
    going = load.goes_on()
    with machine.cut(victim, "worker"):
        recovers("worker's network cut", load, going)
    until(lambda: connected(steady) == WORKERS, "the worker is back", 60)


def test_the_leader_is_killed(
    steady: Fabric, begin: Begin, recovers: Recovers, print_line: PrintLine
) -> None:
    load = begin()
    leader = steady.leader()
    epoch = load.statuses()[0]["epoch"]
    going = load.goes_on()
    kill(steady, leader)
    taken_over(load, leader, epoch, print_line, "leader killed")
    recovers("leader killed", load, going)
    until(lambda: operators_ready(steady) == 2, "two operators are ready again", 60)


@pytest.mark.full
def test_the_leader_is_frozen_past_its_lease_and_thawed(
    steady: Fabric, machine: Machine, begin: Begin, recovers: Recovers, print_line: PrintLine
) -> None:
    load = begin()
    leader = steady.leader()
    pod = steady.kube.get("pod", leader, HERE)
    epoch = load.statuses()[0]["epoch"]
    going = load.goes_on()
    machine.freeze(pod, "operator")
    try:
        taken_over(load, leader, epoch, print_line, "leader frozen")
    finally:
        machine.thaw(pod, "operator")
    until(lambda: ended(steady, pod).get("exitCode") is not None, "the thawed one ends", 60)
    assert ended(steady, pod)["exitCode"] == LOST_LEADERSHIP
    recovers("leader frozen and thawed", load, going)
    assert steady.leaders() != [leader]
    until(lambda: operators_ready(steady) == 2, "two operators are ready again", 60)


def test_the_api_server_is_killed_and_starts_again(
    steady: Fabric, machine: Machine, begin: Begin, recovers: Recovers, print_line: PrintLine
) -> None:
    load = begin()
    going = load.goes_on()
    machine.restart("kube-apiserver")
    away = until(lambda: steady.kube.run("get", "--raw", "/readyz", ok=False) == "ok", "it answers")
    print_line(f"the API server was away for {away:.1f} s")
    recovers("API server restarted", load, going)


@pytest.mark.full
def test_the_bucket_is_unreachable_for_half_a_minute(
    steady: Fabric, service: Service, begin: Begin, recovers: Recovers
) -> None:
    service.start("load", "load", str(REQUESTS), f"{REQUEST_EVERY_S}")
    until(lambda: "answered 20" in service.log("load"), "the service answers")
    load = begin()
    going = load.goes_on()
    scale_store(steady, 0)
    start = time.monotonic()
    until(lambda: time.monotonic() - start >= AWAY_S, "it is away long enough", AWAY_S + 5)
    answered = service.log("load").count("answered")
    until(lambda: service.log("load").count("answered") > answered, "the service goes on")
    scale_store(steady, 1)
    found = service.result("load", 240)
    assert (found["answered"], found["codes"]) == (REQUESTS, {}), "the replica is loaded"
    recovers(f"bucket away for {AWAY_S:.0f} s", load, going)


@pytest.mark.full
def test_the_node_is_drained(steady: Fabric, begin: Begin, recovers: Recovers) -> None:
    load = begin()
    before = names(steady)
    node = load.busy_worker()["spec"]["nodeName"]
    going = load.goes_on()
    words = ("drain", node, f"--pod-selector=flowmesh.dev/pool={POOL}", "--delete-emptydir-data",
             "--timeout=900s")  # fmt: skip
    drain = subprocess.Popen([program("kubectl"), *words], env=steady.kube.environment,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True)  # fmt: skip
    try:
        # The only node: the next pods, which the disruption budget waits for, need it.
        until(lambda: not before <= names(steady), "a worker is evicted")
        steady.kube.run("uncordon", node)
        said, _ = drain.communicate()
    finally:
        drain.kill()
        steady.kube.run("uncordon", node)
    assert drain.returncode == 0, said
    assert not before & names(steady)
    recovers("node drained", load, going)


@pytest.mark.full
def test_the_chart_is_upgraded(steady: Fabric, begin: Begin, recovers: Recovers) -> None:
    load = begin()
    workers, operators = names(steady), names(steady, OPERATORS)
    going = load.goes_on()
    steady.install(*STEADY, "operator.podAnnotations.upgraded=now",
                   f"pools.{POOL}.podTemplate.metadata.annotations.upgraded=now")  # fmt: skip
    recovers("chart upgraded", load, going)
    until(lambda: not workers & names(steady), "all workers are new", 120)
    assert not operators & names(steady, OPERATORS)


def taken_over(load: Load, before: str, epoch: int, print_line: PrintLine, fault: str) -> None:
    """Waits for another leader and its first write; returns the times."""
    fabric = load.fabric
    took = until(lambda: fabric.leaders() not in ([], [before]), "another leads", 30)
    wrote = took + until(
        lambda: all(s.get("epoch", 0) > epoch for s in load.statuses()), "it writes", 30
    )
    print_line(f"{fault}: another leads after {took:.1f} s and has written after {wrote:.1f} s")


def kill(fabric: Fabric, pod: str) -> None:
    """Kills a pod without grace."""
    fabric.kube.run("delete", "pod", pod, HERE, "--grace-period=0", "--force")


def ended(fabric: Fabric, pod: Json) -> Json:
    """Returns how a restarted container ended before."""
    now = fabric.kube.get("pod", pod["metadata"]["name"], HERE)
    states = now["status"].get("containerStatuses") or [{}]
    found: Json = (states[0].get("lastState") or {}).get("terminated") or {}
    return found


def names(fabric: Fabric, selector: str = f"flowmesh.dev/pool={POOL}") -> set[str]:
    found = fabric.kube.items("pods", HERE, f"--selector={selector}")
    return {p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]}


def workers_ready(fabric: Fabric) -> int:
    return ready(fabric, f"flowmesh-pool-{POOL}")


def connected(fabric: Fabric) -> int:
    found = fabric.kube.get("fmwp", POOL, HERE)
    return int((found.get("status") or {}).get("ready", 0))


def operators_ready(fabric: Fabric) -> int:
    return ready(fabric, "flowmesh-operator")


def ready(fabric: Fabric, deployment: str) -> int:
    found = fabric.kube.get("deployment", deployment, HERE)
    assert condition(found, "Available"), json.dumps(found.get("status"))
    return int(found["status"].get("readyReplicas", 0))


def scale_store(fabric: Fabric, replicas: int) -> None:
    fabric.kube.run("scale", "deployment/flowmesh-store", f"--replicas={replicas}", HERE)
