"""Objects of pools, compared with snapshots."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.flowmesh_operator.pool_builder import AROUND, FULL, make_pool

from flowmesh_operator.pod_environment import PodEnvironment
from flowmesh_operator.pools.network import PEER_PORT
from flowmesh_operator.pools.objects import WANTED_METRIC, wanted_objects
from flowmesh_worker.engines.code.code_users import CAPABILITIES
from flowmesh_worker.engines.egress import addresses
from flowmesh_worker.engines.egress.addresses import REFUSE_VARIABLE, AddressPolicy
from flowmesh_worker.llm_settings import VARIABLE, PoolLlmSettings, pool_llm_settings
from flowmesh_worker.settings import parse_settings

SNAPSHOTS = Path(__file__).parent / "snapshots"
KINDS = ["ServiceAccount", "NetworkPolicy", "PodDisruptionBudget", "Deployment"]


def named(kind: str, spec: dict[str, Any], around: PodEnvironment = AROUND) -> dict[str, Any]:
    objects = wanted_objects(make_pool(spec), around)
    return next(o for o in objects if o["kind"] == kind)


def pod(spec: dict[str, Any], around: PodEnvironment = AROUND) -> dict[str, Any]:
    found: dict[str, Any] = named("Deployment", spec, around)["spec"]["template"]
    return found


@pytest.mark.parametrize(("name", "spec"), [("plain", {}), ("full", FULL)])
def test_the_objects_of_a_pool_equal_the_snapshot(name: str, spec: dict[str, Any]) -> None:
    objects = wanted_objects(make_pool(spec), AROUND)
    assert [o["kind"] for o in objects] == KINDS
    file = SNAPSHOTS / f"pool-{name}.json"
    text = json.dumps(objects, indent=1, sort_keys=True) + "\n"
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        pytest.fail(f"{file} is written; read it, and commit it if it is right")
    assert text == file.read_text(), f"delete {file} to write it anew"


def test_the_deployment_sets_the_number_of_workers_only_if_no_autoscaler_does() -> None:
    assert "replicas" not in named("Deployment", {})["spec"]
    for mode in ("hpa", "keda"):
        assert "replicas" not in named("Deployment", {"autoscaling": {"mode": mode}})["spec"]
    fixed = {"maxReplicas": 3, "autoscaling": {"mode": "fixed"}}
    assert named("Deployment", fixed)["spec"]["replicas"] == 3


def test_workers_with_peers_have_a_port_that_only_such_workers_reach() -> None:
    spec = {"serving": {"peers": True}}
    (worker,) = pod(spec)["spec"]["containers"]
    (port,) = worker["ports"]
    assert parse_settings(worker["args"]).peer_port == port["containerPort"] == PEER_PORT
    label = {"flowmesh.dev/peers": "true"}
    assert pod(spec)["metadata"]["labels"].items() >= label.items()
    policy = named("NetworkPolicy", spec)["spec"]
    ports = [{"port": PEER_PORT, "protocol": "TCP"}]
    pods = [{"podSelector": {"matchLabels": label}}]
    assert policy["ingress"] == [{"from": pods, "ports": ports}]
    assert {"to": pods, "ports": ports} in policy["egress"]
    selector = named("Deployment", spec)["spec"]["selector"]
    assert selector == named("Deployment", {})["spec"]["selector"], "it cannot be changed"


def test_a_pools_settings_of_vllm_reach_the_environment_of_its_workers() -> None:
    given = {"maxNumSeqs": 32, "gpuMemoryUtilization": 0.5, "enforceEager": True}
    (worker,) = pod({"devices": {"count": 1}, "llm": given})["spec"]["containers"]
    (value,) = [e["value"] for e in worker["env"] if e["name"] == VARIABLE]
    assert pool_llm_settings({VARIABLE: value}) == msgspec.convert(given, PoolLlmSettings)
    (worker,) = pod({})["spec"]["containers"]
    assert VARIABLE not in {e["name"] for e in worker["env"]}


def test_workers_without_peers_have_no_port() -> None:
    (worker,) = pod({})["spec"]["containers"]
    assert "ports" not in worker
    assert parse_settings(worker["args"]).peer_port == 0
    assert "ingress" not in named("NetworkPolicy", {})["spec"]


def test_every_object_is_owned_by_the_pool_and_deleted_with_it() -> None:
    by_keda = wanted_objects(make_pool({"autoscaling": {"mode": "keda"}}), AROUND, keda=True)
    by_hpa = wanted_objects(make_pool({"autoscaling": {"mode": "hpa"}}), AROUND)
    for item in by_keda + by_hpa[-1:]:
        (owner,) = item["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("FlowMeshWorkerPool", "uid-of-cpu")
        assert item["metadata"]["labels"]["flowmesh.dev/pool"] == "cpu"
        assert item["metadata"]["name"] == "flowmesh-pool-cpu"


def test_a_horizontal_autoscaler_requests_as_many_workers_as_the_metric_shows() -> None:
    spec = {"autoscaling": {"mode": "hpa"}, "minReplicas": 1, "maxReplicas": 4}
    asked = named("HorizontalPodAutoscaler", spec)["spec"]
    assert (asked["minReplicas"], asked["maxReplicas"]) == (1, 4)
    (metric,) = asked["metrics"]
    assert metric["external"]["metric"] == {
        "name": WANTED_METRIC,
        "selector": {"matchLabels": {"pool": "cpu"}},
    }
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "1"}


def test_a_scaled_object_exists_only_in_keda_mode_on_a_cluster_with_keda() -> None:
    keda = make_pool({"autoscaling": {"mode": "keda"}, "maxReplicas": 4})
    both = [*KINDS, "TriggerAuthentication", "ScaledObject"]
    assert [o["kind"] for o in wanted_objects(keda, AROUND, keda=True)] == both
    assert [o["kind"] for o in wanted_objects(keda, AROUND, keda=False)] == KINDS
    assert [o["kind"] for o in wanted_objects(make_pool(), AROUND, keda=True)] == KINDS


def test_keda_trusts_the_gateways_authority_and_presents_a_separate_token() -> None:
    keda = make_pool({"autoscaling": {"mode": "keda"}, "maxReplicas": 4})
    *_, shown, scaled = wanted_objects(keda, AROUND, keda=True)
    secrets = {t["parameter"]: (t["name"], t["key"]) for t in shown["spec"]["secretTargetRef"]}
    assert secrets["bearerToken"] == ("flowmesh-keda", "token")
    assert secrets["cert"] == ("flowmesh-keda-pair", "tls.crt")
    assert secrets["key"] == ("flowmesh-keda-pair", "tls.key")
    assert secrets["ca"] == ("flowmesh-gateway-tls", "ca.crt")
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["authenticationRef"] == {"name": shown["metadata"]["name"]}
    assert trigger["metadata"]["authModes"] == "tls,bearer"
    assert "unsafeSsl" not in trigger["metadata"]
    open_ = replace(AROUND, metrics_secret="")
    *_, last = wanted_objects(keda, open_, keda=True)
    assert "authenticationRef" not in last["spec"]["triggers"][0]


@pytest.mark.parametrize(
    ("mode", "at", "name"),
    [
        ("hpa", "HorizontalPodAutoscaler", "maxReplicas"),
        ("keda", "ScaledObject", "maxReplicaCount"),
    ],
)
def test_an_autoscalers_maximum_decreases_with_the_pools_size(
    mode: str, at: str, name: str
) -> None:
    pool = make_pool({"autoscaling": {"mode": mode}, "maxReplicas": 2})
    for size, most in ((0, 2), (2, 2), (5, 5)):
        last = wanted_objects(pool, AROUND, keda=True, size=size)[-1]
        assert (last["kind"], last["spec"][name]) == (at, most)


def test_a_worker_parses_the_arguments_of_its_pod() -> None:
    template = pod(FULL)
    arguments = [
        a.replace("$(POD_NAME)", "w-1").replace("$(NODE_NAME)", "n-1").replace("$(ZONE)", "")
        for a in template["spec"]["containers"][0]["args"]
    ]
    settings = parse_settings(arguments)
    assert (settings.name, settings.pool, settings.node) == ("w-1", "cpu", "n-1")
    assert settings.zone == ""
    assert settings.grace_s == 90.0
    assert settings.cpus == 2
    assert 0 < settings.memory_mib < 32 * 1024
    assert settings.price_nanousd_per_hour == 2_100_000_000
    assert not settings.price_estimated
    assert (settings.power_w, settings.idle_w) == (900.0, 120.5)
    assert settings.labels == {"team": "research", "a": "b"}
    assert settings.allow_user_code
    assert not settings.cpu_only
    assert settings.cache_bytes < 100 << 30
    assert template["spec"]["terminationGracePeriodSeconds"] > settings.grace_s


def test_without_devices_a_worker_uses_only_the_cpu() -> None:
    assert "--cpu-only" in pod({})["spec"]["containers"][0]["args"]


def test_a_device_product_is_required_of_nodes_besides_the_pools_own_affinity() -> None:
    affinity = pod(FULL)["spec"]["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    asked = [[(e["key"], e["values"]) for e in t["matchExpressions"]] for t in terms]
    product = ("nvidia.com/gpu.product", ["NVIDIA-H200"])
    assert asked == [[product, ("zone", ["a"])], [product, ("zone", ["b"])]]


def test_overrides_cannot_change_the_labels_that_selectors_use() -> None:
    spec = {"podTemplate": {"metadata": {"labels": {"flowmesh.dev/pool": "other", "x": "y"}}}}
    labels = pod(spec)["metadata"]["labels"]
    assert labels["flowmesh.dev/pool"] == "cpu"
    assert labels["x"] == "y"


def test_user_code_runs_beside_the_worker_with_another_uid_and_without_its_files() -> None:
    template = pod({"userCode": True})["spec"]
    (code,) = template["initContainers"]
    (worker,) = template["containers"]
    user = template["securityContext"]["runAsUser"]
    assert code["securityContext"]["runAsUser"] != user
    assert "envFrom" not in code
    mine = {m["name"] for m in code["volumeMounts"]}
    theirs = {m["name"] for m in worker["volumeMounts"]}
    assert mine & theirs == {"code"}
    assert "initContainers" not in pod({})["spec"]


def peers(
    spec: dict[str, Any], around: PodEnvironment = AROUND
) -> list[tuple[list[Any], list[int]]]:
    rules = named("NetworkPolicy", spec, around)["spec"]["egress"]
    return [(r.get("to", []), [p["port"] for p in r.get("ports", [])]) for r in rules]


def test_pods_reach_dns_gateway_blob_service_and_bucket_and_nothing_else() -> None:
    policy = named("NetworkPolicy", {})["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in policy
    dns, gateway, blobs, bucket = peers({})
    (cluster,), ports = dns
    assert cluster["podSelector"] == {"matchLabels": {"k8s-app": "kube-dns"}}
    assert cluster["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "kube-system"
    }
    assert ports == [53, 53]
    assert gateway == ([{"podSelector": {"matchLabels": AROUND.operator_labels}}], [8470])
    assert blobs == ([{"podSelector": {"matchLabels": AROUND.blob_service_labels}}], [8472])
    assert bucket == ([{"podSelector": {}}], [7070])


@pytest.mark.parametrize(
    ("store", "to", "ports"),
    [
        ("s3://b?region=x", ["10.0.0.0/8"], [443]),
        ("s3://b?endpoint=https://minio.example.com:9000", ["10.0.0.0/8"], [9000]),
        ("s3://b?endpoint=http://minio.example.com", ["10.0.0.0/8"], [80]),
    ],
)
def test_an_external_bucket_is_reached_at_its_port(
    store: str, to: list[str], ports: list[int]
) -> None:
    around = PodEnvironment("flowmesh", "wss://g:1", store, store_cidrs=("10.0.0.0/8",))
    bucket = peers({}, around)[2]
    assert bucket == ([{"ipBlock": {"cidr": cidr}} for cidr in to], ports)


@pytest.mark.parametrize(
    ("api_server", "endpoint", "refused"),
    [
        ("10.0.0.1", "http://flowmesh-store.flowmesh.svc:7070", "34.118.224.0/20"),
        ("34.1.2.3", "https://52.1.2.3:9000", "34.118.224.0/20,34.1.2.3/32,52.1.2.3/32"),
        ("2600::1", "https://bucket.example.com", "34.118.224.0/20,2600::1/128"),
    ],
)
def test_workers_get_the_public_addresses_of_the_cluster_to_refuse(
    monkeypatch: pytest.MonkeyPatch, api_server: str, endpoint: str, refused: str
) -> None:
    around = PodEnvironment(
        "flowmesh",
        "wss://g:1",
        f"s3://b?endpoint={endpoint}",
        cluster_cidrs=("34.118.224.0/20",),
        api_server_host=api_server,
    )
    [worker] = pod({}, around)["spec"]["containers"]
    told = {e["name"]: e.get("value") for e in worker["env"]}
    assert told[REFUSE_VARIABLE] == refused
    monkeypatch.setenv(REFUSE_VARIABLE, refused)
    rule = AddressPolicy.from_environment()
    for network in refused.split(","):
        assert not rule.permits(network.partition("/")[0])
    assert rule.permits("8.8.8.8")


def test_a_store_on_a_volume_is_mounted_and_needs_no_egress_rule() -> None:
    around = PodEnvironment("flowmesh", "wss://g:1", "file:///srv/store", store_claim="shared")
    assert len(peers({}, around)) == 2
    template = pod({}, around)["spec"]
    mounts = {m["mountPath"]: m["name"] for m in template["containers"][0]["volumeMounts"]}
    assert mounts["/srv/store"] == "store"
    (volume,) = [v for v in template["volumes"] if v["name"] == "store"]
    assert volume["persistentVolumeClaim"] == {"claimName": "shared"}


@pytest.mark.parametrize(
    ("cidr", "excluded"),
    [
        ("0.0.0.0/0", list(map(str, addresses._NOT_PUBLIC_V4))),
        ("::/0", ["::/3", "4000::/2", "8000::/1", *map(str, addresses._NOT_PUBLIC_V6)]),
        ("172.0.0.0/8", ["172.16.0.0/12"]),
        ("8.8.8.0/24", None),
        ("10.1.0.0/16", None),
    ],
)
def test_a_wide_egress_range_excludes_non_public_addresses(
    cidr: str, excluded: list[str] | None
) -> None:
    *_, own = peers({"egress": [{"cidr": cidr}]})
    ((block,), ports) = own
    assert block["ipBlock"].get("except") == excluded
    assert ports == []


def test_in_a_user_namespace_the_code_s_container_may_switch_users() -> None:
    template = pod({"userCode": True, "sandbox": {"hostUsers": False}})["spec"]
    (code,) = template["initContainers"]
    assert template["hostUsers"] is False
    assert code["securityContext"]["runAsUser"] == 0
    assert set(code["securityContext"]["capabilities"]["add"]) == set(CAPABILITIES)
    assert "hostUsers" not in pod({"userCode": True})["spec"]
    assert template["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_pools_sandbox_settings_reach_its_workers() -> None:
    spec = {"userCode": True, "sandbox": {"minimum": "weak", "runtimeClassName": "gvisor"}}
    template = pod(spec)["spec"]
    assert template["runtimeClassName"] == "gvisor"
    arguments = template["containers"][0]["args"]
    assert parse_settings(arguments).sandbox_minimum == "weak"
    assert parse_settings(pod({"userCode": True})["spec"]["containers"][0]["args"]
                          ).sandbox_minimum == "landlock"  # fmt: skip


def test_a_volume_claim_is_written_by_one_worker_at_a_time() -> None:
    spec = named("Deployment", {"cache": {"claimName": "kept"}})["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    volumes = {v["name"]: v for v in spec["template"]["spec"]["volumes"]}
    assert volumes["cache"]["persistentVolumeClaim"] == {"claimName": "kept"}


def test_workers_trust_the_authority_of_a_bucket_where_one_is_configured() -> None:
    (made,) = [
        o
        for o in wanted_objects(make_pool({}), replace(AROUND, store_ca_secret="bucket-ca"))
        if o["kind"] == "Deployment"
    ]
    pod = made["spec"]["template"]["spec"]
    (worker,) = pod["containers"]
    (mount,) = [m for m in worker["volumeMounts"] if m["name"] == "store-ca"]
    (volume,) = [v for v in pod["volumes"] if v["name"] == "store-ca"]
    assert f"--store-ca={mount['mountPath']}/ca.crt" in worker["args"]
    assert volume["secret"]["secretName"] == "bucket-ca"
    assert volume["secret"]["items"] == [{"key": "ca.crt", "path": "ca.crt"}]
