"""A service on a cluster: a pool grows from zero for it, clients call it through a Service.

Killed routers and workers cost no more than the requests that they had.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from e2e.harness.fabric import NAMESPACE, RELEASE, Fabric
from e2e.harness.fabric_network import ALLOWED, FabricNetwork
from e2e.harness.kube import Json, until
from e2e.harness.machine import Machine
from e2e.harness.pools import code_pool_spec, pool
from e2e.harness.reach import bystander, extra_policy, only_opens, opened
from e2e.harness.services import Service, listening
from e2e.harness.user import User

POOL, TEAM, CLIENTS = "thin", "team-services", "clients"
DNS_LABELS = {"k8s-app": "kube-dns"}
HERE = f"--namespace={NAMESPACE}"
ROUTERS = "--selector=app.kubernetes.io/name=flowmesh,app.kubernetes.io/component=router"
AT_ONCE = ("--grace-period=0", "--force")
CODE_POOL, CODE_WORKER = "code-services", {"cpu": 0.25, "memory": "1536Mi"}
CODE = """
def double(batch):
    return [{"text": f"{call['text']} {call['text']}"} for call in batch]
"""
PEERS, PEER_PORT = {"serving": {"peers": True}}, f":{8483:04X}"
TWO = {"replicas": {"min": 2, "max": 2}}
STAGES = {
    "components": {
        "double": {"python": {"code": CODE, "function": "double"}, **TWO},
        "echo": {"uses": "test.echo", **TWO},
    },
    "stages": [
        {"name": "twice", "component": "double", "inputs": {"text": "request.text"}},
        {
            "name": "said",
            "component": "echo",
            "with": {"messages": [{"role": "user", "content": "{{ twice.text }}"}]},
        },
    ],
    "reply": {"said": "said.completion"},
}
QUERIES, ROWS = 24, 120_000_000
"""Of a second of a processor each: the pool grows to its bound of three for them."""
STAYS_S = 20.0
"""Several times as long as an idle worker stays (``scaleDownAfter``)."""
LOST_MAX = 8
"""Requests that a killed router and a killed worker may have had."""


@pytest.fixture(scope="module")
def service(fabric: Fabric, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Two replicas of an engine that repeats its prompt, on a pool without workers."""
    until(lambda: not fabric.workers(POOL), "the pool has no worker", 120)
    fabric.kube.namespace(TEAM)
    user = User(fabric, TEAM, tmp_path_factory.mktemp("services"))
    user.begin()
    made = Service(fabric, user, "ask")
    made.apply({"min": 2, "max": 2})
    yield made
    made.delete()
    fabric.kube.run("delete", "namespace", TEAM, "--wait=false")
    until(lambda: not fabric.workers(POOL), "the pool shrinks to no worker", 120)


def test_a_pool_grows_from_zero_for_a_service_which_becomes_ready(
    fabric: Fabric, service: Service, print_line: Callable[[str], None]
) -> None:
    service.wait("Ready", 120)
    until(lambda: service.status()["ready"] == "2/2", "both replicas are ready", 120)
    print_line(f"two replicas on a pool of none: {time.monotonic() - service.applied_s:.1f} s")
    status = service.status()
    assert (status["phase"], status["model"]) == ("Ready", "ask")
    assert status["endpoint"] == f"https://flowmesh-router.{NAMESPACE}.svc:8480/v1"
    assert len(fabric.workers(POOL)) == 2
    decisions = json.dumps(fabric.kube.get("fmwp", POOL, HERE)["status"].get("decisions"))
    assert "replicas of services need" in decisions


def test_a_worker_that_serves_stays_while_an_idle_one_is_removed(
    fabric: Fabric, service: Service, print_line: Callable[[str], None]
) -> None:
    until(lambda: service.status()["ready"] == "2/2", "both replicas are ready", 120)
    serving = identities(fabric)
    assert len(serving) == 2
    steps = [query(f"q{n}", ROWS + n) for n in range(QUERIES)]
    fabric.submit(TEAM, "short", {"steps": steps})
    until(lambda: len(identities(fabric).keys() - serving.keys()) == 1, "a third comes", 120)
    fabric.completed(TEAM, "short", 240)
    ended_s = time.monotonic()
    until(lambda: identities(fabric).keys() == serving.keys(), "the idle one is removed", 120)
    print_line(f"an idle worker beside two that serve: gone {time.monotonic() - ended_s:.1f} s")
    start = time.monotonic()
    until(lambda: time.monotonic() - start >= STAYS_S, "others would be removed", STAYS_S + 5)
    assert identities(fabric) == serving, "the same pods, and none of them started again"
    assert service.status()["ready"] == "2/2"


def test_requests_go_on_while_a_router_and_a_worker_are_killed(
    fabric: Fabric, service: Service, print_line: Callable[[str], None]
) -> None:
    service.start("load", "load", "240", "0.125")
    until(lambda: "answered 20" in service.log("load"), "the client is answered")
    router = fabric.kube.items("pods", HERE, ROUTERS)[0]["metadata"]["name"]
    fabric.kube.run("delete", "pod", router, HERE, *AT_ONCE)
    until(lambda: "answered 60" in service.log("load"), "it goes on with the other router")
    worker = fabric.workers(POOL)[0]["metadata"]["name"]
    fabric.kube.run("delete", "pod", worker, HERE, *AT_ONCE)
    found = service.result("load", 240)
    print_line(f"of 240 requests {found['answered']} were answered; failed: {found['codes']}")
    assert found["wrong"] == 0
    assert found["failed"] <= LOST_MAX, found
    assert set(found["last"]) == {"ok"}
    until(lambda: service.status()["ready"] == "2/2", "a replica replaces the lost one", 120)


def test_a_pod_without_a_certificate_is_no_hub_and_reaches_none(
    fabric: Fabric, service: Service
) -> None:
    routers = {"app.kubernetes.io/name": "flowmesh", "app.kubernetes.io/component": "router"}
    admits = {
        "podSelector": {"matchLabels": routers},
        "ingress": [{"from": [{"namespaceSelector": {}}], "ports": [{"port": 8481}]}],
    }
    with extra_policy(fabric.kube, "hubs-from-everywhere", admits):
        service.start("hub", "hub")
        assert "welcome" not in service.result("hub")["refused"], "the connection ends instead"
    for worker in fabric.workers(POOL):
        assert listening(fabric, worker["metadata"]["name"]) == [], "hubs connect, nothing to them"
    service.start("client", "load", "1", "0")
    assert service.result("client")["answered"] == 1, "the rightful hubs use the same port"


def test_a_token_of_kubernetes_calls_where_its_account_may(
    fabric: Fabric, service: Service
) -> None:
    kube, space = fabric.kube, f"--namespace={TEAM}"
    words = ("--verb=call", "--resource=flowmeshservices.flowmesh.dev", space)
    kube.run("create", "role", "call", *words)
    for name in ("app", "other"):
        kube.run("create", "serviceaccount", name, space)
    kube.run("create", "rolebinding", "app", "--role=call", f"--serviceaccount={TEAM}:app", space)
    for pod, account, audience in (
        ("own", "app", "flowmesh"),
        ("foreign", "app", "another"),
        ("without", "other", "flowmesh"),
    ):
        token = kube.run("create", "token", account, space, f"--audience={audience}").strip()
        service.start(pod, "load", "4", "0", token=token)
    assert service.result("own")["answered"] == 4
    assert set(service.result("foreign")["last"]) == {"401"}
    assert set(service.result("without")["last"]) == {"403"}


@pytest.fixture(scope="module")
def staged(
    fabric: Fabric, service: Service, print_line: Callable[[str], None]
) -> Iterator[Service]:
    """Two stages with two replicas each, on two workers whose hubs are peers."""
    spec = code_pool_spec(fabric, minReplicas=0, maxReplicas=2, resources=CODE_WORKER, **PEERS)
    with pool(fabric, CODE_POOL, spec):
        made = Service(fabric, service.user, "staged")
        made.apply_spec(STAGES)
        made.wait("Ready", 120)
        until(lambda: made.status()["ready"] == "4/4", "all replicas are ready", 120)
        print_line(f"stages on a pool of none: {time.monotonic() - made.applied_s:.1f} s")
        yield made
        made.delete()


def test_pods_reach_only_what_network_policies_allow(
    fabric: Fabric, machine: Machine, staged: Service, network: FabricNetwork
) -> None:
    for peer in fabric.workers(CODE_POOL):
        (port,) = listening(fabric, peer["metadata"]["name"])
        assert port.endswith(PEER_PORT), "hubs of its pool connect to it"
    expected = network.allowed()
    only_opens(machine, network.pods, network.edges, expected)
    assert network.evaluated() == expected, "the evaluator of tests/charts decides as the kernel"
    with machine.without_policies():
        found = opened(machine, network.pods, network.edges)
        assert found == set(network.edges), "all targets listen: only policies close connections"
    only_opens(machine, network.pods, network.edges, expected)
    with clients_restricted(fabric):
        closed = {"tenant": ALLOWED["tenant"] - {"gateway", "requests"}}
        only_opens(machine, network.pods, network.edges, network.allowed(closed))


def test_stages_of_users_code_outlive_one_of_their_workers(
    fabric: Fabric, staged: Service, print_line: Callable[[str], None]
) -> None:
    staged.start("stages", "invoke", "120", "0.125")
    until(lambda: "answered 20" in staged.log("stages"), "the stages answer")
    worker = fabric.workers(CODE_POOL)[0]["metadata"]["name"]
    fabric.kube.run("delete", "pod", worker, HERE, *AT_ONCE)
    found = staged.result("stages", 240)
    print_line(f"of 120 requests {found['answered']} were answered; failed: {found['codes']}")
    assert found["wrong"] == 0
    assert found["failed"] <= LOST_MAX, found
    assert set(found["last"]) == {"ok"}


def test_a_revoked_token_is_refused(service: Service) -> None:
    service.revoke_tokens()
    service.start("late", "load", "40", "0.25")
    found = service.result("late")
    assert set(found["last"]) == {"401"}, found


@pytest.fixture(scope="module")
def network(fabric: Fabric, staged: Service) -> Iterator[FabricNetwork]:
    """The fabric's pods; a tenant's with the labels of a worker, a client's, and one for DNS."""
    one, two = fabric.workers(CODE_POOL)
    fabric.kube.namespace(CLIENTS, {"flowmesh.dev/client": "true"})
    chart = {part: fabric.pod(part) for part in ("blobs", "router", "store")}
    yield FabricNetwork(
        fabric,
        {
            **chart,
            "operator": fabric.kube.get("pod", fabric.leader(), HERE),
            "worker": fabric.workers(POOL)[0],
            "one": one,
            "two": two,
            "tenant": bystander(fabric.kube, TEAM, "lookalike", one["metadata"]["labels"]),
            "client": bystander(fabric.kube, CLIENTS, "client", DNS_LABELS),
            "dns": bystander(fabric.kube, "kube-system", "dns", DNS_LABELS),
        },
    )
    fabric.kube.run("delete", "pod", "dns", "--namespace=kube-system")
    fabric.kube.run("delete", "namespace", CLIENTS, "--wait=false")


@contextmanager
def clients_restricted(fabric: Fabric) -> Iterator[None]:
    """Restricts who may call gateway and routers."""

    def restrict(value: str) -> None:
        setting = f"--set=networkPolicy.restrictClients={value}"
        chart = str(fabric.chart)
        fabric.helm("upgrade", RELEASE, chart, "--reuse-values", "--no-hooks", "--wait", setting)

    restrict("true")
    try:
        yield
    finally:
        restrict("false")


def identities(fabric: Fabric) -> dict[str, int]:
    """Returns by uid how often the containers of each of the pool's pods were started again."""
    return {
        pod["metadata"]["uid"]: sum(
            c["restartCount"] for c in pod["status"].get("containerStatuses", ())
        )
        for pod in fabric.workers(POOL)
    }


def query(name: str, rows: int) -> Json:
    """Returns a step that takes a while of a processor."""
    text = f"select max(hash(i) % 1000) as most from range({rows}) t(i)"
    return {"name": name, "uses": "data.sql", "with": {"query": text}}
