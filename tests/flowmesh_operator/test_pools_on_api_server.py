"""Pools from ``kubectl apply`` to zero again: real API server, operator and worker.

No controller-manager runs, so the test stands in for the ReplicaSet: it makes a pod for a size of
one, runs its worker as a process with the token that the pod would have, and ends both at zero.
"""

import json
import signal
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.flowmesh_operator.api_server import ApiServer, until
from tests.flowmesh_operator.pool_builder import pool_object
from tests.flowmesh_operator.replicas import Objects, Replicas, noop, replicas

from flowmesh_operator.kube.labels import DELETION_COST

pytestmark = pytest.mark.slow
COST = DELETION_COST.replace(".", r"\.")


@dataclass
class Cluster:
    """The operator's namespace, seen by an administrator."""

    made: Replicas

    def pool(self, name: str, **spec: Any) -> None:
        given = pool_object({"engines": {"flavor": "thin"}, **spec}, name, self.made.own)
        given["metadata"] = {"name": name, "namespace": self.made.own}
        self.made.server.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(given))

    def delete(self, name: str) -> None:
        """Deletes the pool and its owned objects, as the garbage collector would."""
        self.made.server.kubectl("delete", "fmwp", name, "-n", self.made.own)
        kinds = "deployment,serviceaccount,networkpolicy,poddisruptionbudget"
        self.made.server.kubectl("delete", kinds, f"flowmesh-pool-{name}", "-n", self.made.own)

    def get(self, *words: str) -> dict[str, Any]:
        return self.made.server.get(*words, "-n", self.made.own)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get("fmwp", name).get("status") or {}
        return found

    def condition(self, name: str, kind: str) -> dict[str, Any]:
        listed = self.status(name).get("conditions") or []
        return next((c for c in listed if c["type"] == kind), {})

    def size(self, name: str) -> int | None:
        words = ("get", "deployment", f"flowmesh-pool-{name}", "-n", self.made.own)
        found = self.made.server.kubectl(*words, "-o", "jsonpath={.spec.replicas}", ok=False)
        return int(found.stdout) if found.returncode == 0 else None

    def pod(self, pool: str, name: str) -> None:
        """Creates a ready pod of the pool, as a kubelet would report it."""
        template = self.get("deployment", f"flowmesh-pool-{pool}")["spec"]["template"]
        lone = {"apiVersion": "v1", "kind": "Pod", **template}
        lone["metadata"] = {**template["metadata"], "name": name}
        at = ("-n", self.made.own)
        self.made.server.kubectl("create", "-f", "-", *at, given=json.dumps(lone))
        self.say(name, conditions=[{"type": "Ready", "status": "True"}])

    def say(self, pod: str, **status: Any) -> None:
        """Sets a pod's status, as scheduler and kubelet would."""
        words = ("patch", "pod", pod, "--subresource=status", "--type=merge", "-p")
        self.made.server.kubectl(*words, json.dumps({"status": status}), "-n", self.made.own)

    def cost(self, pod: str) -> str:
        path = f"jsonpath={{.metadata.annotations.{COST}}}"
        words = ("get", "pod", pod, "-n", self.made.own, "-o", path)
        return str(self.made.server.kubectl(*words).stdout)

    def requests(self) -> dict[tuple[str, str], float]:
        """Returns the operator's counters of requests, by verb and resource."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.made.port}/metrics") as answer:
            text = answer.read().decode()
        return {
            (sample.labels["verb"], sample.labels["resource"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "flowmesh_api_requests_total"
        }

    def token(self, account: str, audience: str = "flowmesh") -> Path:
        words = ("create", "token", account, "-n", self.made.own, f"--audience={audience}")
        file = self.made.root / f"token-of-{account}-{audience}"
        file.write_text(self.made.server.kubectl(*words).stdout)
        return file


@pytest.fixture(scope="module")
def cluster(api_server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with replicas(api_server, tmp_path_factory.mktemp("pools")) as made:
        made.operator("a", FLOWMESH_WORKER_TOKEN="", FLOWMESH_METRICS_OPEN="true")
        until(lambda: made.leads("a"), "a leads", 30)
        yield Cluster(made)


@pytest.fixture
def objects(cluster: Cluster, namespace: str) -> Objects:
    return Objects(cluster.made.server, namespace)


def test_a_pool_becomes_a_deployment_of_size_zero_with_conditions(cluster: Cluster) -> None:
    cluster.pool("calm", maxReplicas=3)
    until(lambda: cluster.size("calm") == 0, "a Deployment of size 0")
    until(lambda: cluster.condition("calm", "Ready").get("status") == "True", "Ready")
    status = cluster.status("calm")
    assert (status["desired"], status["ready"], status["busy"]) == (0, 0, 0)
    assert status["observedGeneration"] == 1
    assert cluster.condition("calm", "Accepted")["reason"] == "Applied"
    assert cluster.condition("calm", "Scaling")["reason"] == "ByBacklog"
    cluster.pool("calm", minReplicas=2, maxReplicas=3)
    until(lambda: cluster.size("calm") == 2, "the least size")
    (decision,) = cluster.status("calm")["decisions"]
    assert (decision["before"], decision["after"]) == (0, 2)
    assert cluster.condition("calm", "Ready")["reason"] == "WorkersStarting"
    cluster.delete("calm")


def test_a_pool_grows_from_zero_for_work_and_goes_back_to_zero(
    cluster: Cluster, objects: Objects
) -> None:
    cluster.pool("grow", maxReplicas=1, autoscaling={"scaleDownAfter": "2s"})
    until(lambda: cluster.size("grow") == 0, "a Deployment of size 0")
    sleeping = {"name": "a", "uses": "test.sleep", "with": {"seconds": 8}}
    objects.apply(objects.workflow("w", sleeping, noop("b")))
    until(lambda: cluster.size("grow") == 1, "a worker is asked for")
    decision = cluster.status("grow")["decisions"][0]
    assert (decision["before"], decision["after"]) == (0, 1)
    assert "wait" in decision["reason"]
    until(
        lambda: "a worker of pool" in objects.condition("w", "Running").get("message", ""),
        "the workflow says what it waits for",
    )
    cluster.pod("grow", "grow-1")
    token = cluster.token("flowmesh-pool-grow")
    cluster.made.worker("grow-1", "--pool", "grow", "--token-file", str(token))
    until(lambda: cluster.status("grow").get("busy") == 1, "the worker is busy")
    assert cluster.status("grow")["ready"] == 1
    objects.wait("w", within_s=400)
    until(lambda: cluster.size("grow") == 0, "the pool is empty again")
    assert cluster.cost("grow-1") == "-1000"
    down, up = cluster.status("grow")["decisions"]
    assert (down["before"], down["after"], up["after"]) == (1, 0, 1)
    assert "enough" in down["reason"]
    assert cluster.made.end("grow-1") == 0
    cluster.delete("grow")


def test_a_token_admits_workers_of_its_pool_and_of_no_other(cluster: Cluster) -> None:
    cluster.pool("mine")
    cluster.pool("theirs")
    until(lambda: cluster.size("theirs") == 0 and cluster.size("mine") == 0, "two Deployments")
    mine = cluster.token("flowmesh-pool-mine")
    made = cluster.made
    made.worker("stranger", "--pool", "theirs", "--token-file", str(mine))
    assert made.processes.pop("stranger").wait(300) == 3
    assert "the token is for pool 'mine', not for pool 'theirs'" in made.log("stranger")
    wrong = cluster.token("flowmesh-pool-theirs", audience="another")
    made.worker("elsewhere", "--pool", "theirs", "--token-file", str(wrong))
    assert made.processes.pop("elsewhere").wait(300) == 3
    assert "not valid for any pool" in made.log("elsewhere")
    made.worker("mine-1", "--pool", "mine", "--token-file", str(mine))
    until(lambda: cluster.status("mine").get("ready") == 1, "the right one is welcome")
    made.end("mine-1", signal.SIGKILL)
    cluster.delete("mine")
    cluster.delete("theirs")


def test_a_pool_names_what_its_pods_wait_for_and_forgets_it(cluster: Cluster) -> None:
    cluster.pool("stuck", minReplicas=1, maxReplicas=1)
    until(lambda: cluster.size("stuck") == 1, "a worker is asked for")
    cluster.pod("stuck", "stuck-1")

    def reason(expected: str) -> str:
        until(lambda: cluster.condition("stuck", "Ready").get("reason") == expected, expected)
        return str(cluster.condition("stuck", "Ready")["message"])

    scheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.say("stuck-1", conditions=[{**scheduled, "message": "0/1 nodes are available"}])
    assert "0/1 nodes are available" in reason("Unschedulable")
    state = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
    worker = {"name": "worker", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    cluster.say(
        "stuck-1",
        conditions=[{"type": "PodScheduled", "status": "True"}],
        containerStatuses=[{**worker, "state": state}],
    )
    assert "pod stuck-1: Back-off pulling image" in reason("ImagePullBackOff")
    cluster.say("stuck-1", containerStatuses=[])
    assert reason("WorkersStarting") == "0 of 1 workers are connected"
    cluster.made.server.kubectl("delete", "pod", "stuck-1", "-n", cluster.made.own, "--now")
    cluster.delete("stuck")


def test_an_invalid_pool_gets_a_refused_condition(cluster: Cluster) -> None:
    cluster.pool("wrong", podTemplate={"spec": {"containers": [{"env": [{"name": "A=B"}]}]}})
    until(lambda: cluster.condition("wrong", "Accepted").get("status") == "False", "not Accepted")
    refused = cluster.condition("wrong", "Accepted")
    assert refused["reason"] == "Refused"
    assert "env" in refused["message"]
    cluster.made.server.kubectl("delete", "fmwp", "wrong", "-n", cluster.made.own)


def test_kubectl_shows_the_columns(cluster: Cluster) -> None:
    cluster.pool("shown", price={"usdPerHour": "1.25"})
    until(lambda: cluster.status("shown").get("observedGeneration") == 1, "a status")
    table = cluster.made.server.kubectl("get", "fmwp", "shown", "-n", cluster.made.own).stdout
    header, row = table.strip().splitlines()
    assert header.split()[:6] == ["NAME", "DESIRED", "READY", "BUSY", "BACKLOG", "PRICE"]
    assert row.split()[:6] == ["shown", "0", "0", "0", "0", "1.25"]
    cluster.delete("shown")


READS = frozenset({"get", "list"})


def test_an_idle_fabric_writes_nothing_but_its_lease(cluster: Cluster) -> None:
    cluster.pool("idle", maxReplicas=3)
    until(lambda: cluster.condition("idle", "Ready").get("status") == "True", "Ready")
    before = cluster.requests()

    def looked() -> bool:
        return cluster.requests()["list", "deployments"] >= before["list", "deployments"] + 2

    until(looked, "two more rounds of looking")
    after = cluster.requests()
    written = {
        key: after[key] - before.get(key, 0)
        for key in after
        if key[0] not in READS and key[1] != "leases" and after[key] != before.get(key, 0)
    }
    assert written == {}
    cluster.delete("idle")


def test_another_leader_removes_no_busy_worker(cluster: Cluster, objects: Objects) -> None:
    cluster.pool("hold", maxReplicas=1, autoscaling={"scaleDownAfter": "1s"})
    until(lambda: cluster.size("hold") == 0, "a Deployment of size 0")
    sleeping = {"name": "a", "uses": "test.sleep", "with": {"seconds": 20}}
    objects.apply(objects.workflow("long", sleeping))
    until(lambda: cluster.size("hold") == 1, "a worker is asked for")
    cluster.pod("hold", "hold-1")
    token = cluster.token("flowmesh-pool-hold")
    made = cluster.made
    made.worker("hold-1", "--pool", "hold", "--token-file", str(token))
    until(lambda: cluster.status("hold").get("busy") == 1, "the worker is busy")
    epoch = cluster.status("hold")["epoch"]
    made.end("a", signal.SIGKILL)
    made.operator("b", FLOWMESH_WORKER_TOKEN="", FLOWMESH_METRICS_OPEN="true")
    until(lambda: made.leads("b"), "b leads", 30)
    until(lambda: cluster.status("hold")["epoch"] > epoch, "b has looked at the pool")
    until(lambda: cluster.status("hold")["busy"] == 1, "b knows that the worker is busy")
    assert "does not know the pool" not in made.log("hold-1"), "it was taken back at once"
    objects.wait("long", within_s=400)
    assert [d["after"] for d in cluster.status("hold")["decisions"] if d["before"]] in ([], [0])
    until(lambda: cluster.size("hold") == 0, "the pool is empty again")
    assert objects.status("long")["phase"] == "Succeeded"
    made.end("hold-1")
    cluster.delete("hold")
